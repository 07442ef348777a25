"""CIFAR-10: the real images where they are found, otherwise generated ones.

Compute nodes often have no internet, and a lesson must not fail for want of 170 MB. The generated set is
learnable, and every result on it says that it is not CIFAR-10. The real files are pickles, and a pickle can
run a program: only the published files are read, and of them only arrays, lists and text.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import pickle
from pathlib import Path
from typing import Any, Callable

import numpy as np
from PIL import Image
from torch.utils.data import Dataset, Subset

from common.arrays import NAMES, Array, read_arrays
from common.brought import load_brought
from common.distributed import Refused, TrainerError, node_name, print_rank0
from common.images import DatasetInfo as DatasetInfo
from common.images import ImagesInfo as ImagesInfo
from common.images import shown, transforms
from common.once import made_once
from common.text import load_text
from common.vision import datasets, v2

CIFAR10_KINDS = ("auto", "cifar10", "generated")
FOLDER = "cifar-10-batches-py"
TRAIN_FILES, TEST_FILES = dict(datasets.CIFAR10.train_list), dict(datasets.CIFAR10.test_list)
"""Name of a published file → its MD5."""
GENERATED = "cifar-10-generated.npz"
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
GENERATOR_VERSION = 3
"""Goes up with every change of the set: one that lies in a cache is never taken for another."""


class SmallImages(Dataset[Any]):
    """Images as bytes (image, row, column, colour) and their classes, made ready by `transform`."""

    def __init__(self, data: Array, targets: Array, transform: Callable[[Any], Any]) -> None:
        self.data, self.targets, self.transform = data, targets, transform

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.transform(Image.fromarray(self.data[index])), int(self.targets[index])


def load_data(args: argparse.Namespace) -> tuple[Dataset[Any], Dataset[Any], ImagesInfo]:
    """The training set, the test set, and their description: bytes of text for the GPT, images for all
    others.

    A trainer without the options `data`, `image_size` and `augment` trains on CIFAR-10.
    """
    data = getattr(args, "data", "auto")
    if args.model == "gpt":
        if data != "auto":
            raise TrainerError(f"model=gpt reads text, and data={shown(data)} is images: leave out data")
        train_set, test_set, name, path = load_text(args.num_train_samples)
        print_rank0(f"data: {name} in {path}")
        return train_set, test_set, ImagesInfo(name, path, is_synthetic=False, num_classes=256)
    image_size, augment = getattr(args, "image_size", 32), getattr(args, "augment", "auto")
    if data not in CIFAR10_KINDS:
        return load_brought(data, image_size, augment, args.num_train_samples)
    return load_cifar10(args.data_dir, args.cache_dir, args.num_train_samples, data, image_size, augment)


def load_cifar10(
    data_dir: str | None,
    cache_dir: str | None,
    num_train_samples: int = 0,
    kind: str = "auto",
    image_size: int = 32,
    augment: str = "auto",
) -> tuple[Dataset[Any], Dataset[Any], ImagesInfo]:
    """The training set (augmented), the test set, and their description. `num_train_samples` keeps only the
    first ones; 0: all."""
    folder = None if kind == "generated" else find_cifar10(data_dir, cache_dir, is_needed=kind == "cifar10")
    if folder is None:
        folder = generate_cifar10(Path(cache_dir or default_cache_dir()))
    train, test = read_cifar10(folder)
    is_synthetic = (folder / GENERATED).is_file()
    fit = [] if image_size == 32 else [v2.Resize(image_size)]
    ready, as_it_is = transforms("crop_flip" if augment == "auto" else augment, image_size, fit, MEAN, STD)
    train_set: Dataset[Any] = SmallImages(*train, ready)
    test_set = SmallImages(*test, as_it_is)
    if 0 < num_train_samples < len(train_set):  # type: ignore[arg-type] # it has a length
        train_set = Subset(train_set, range(num_train_samples))
    info = ImagesInfo(
        "CIFAR-10 (generated stand-in)" if is_synthetic else "CIFAR-10",
        str(folder),
        is_synthetic,
        image_size=image_size,
    )
    if is_synthetic:
        print_rank0(
            f"data: generated stand-in for CIFAR-10 in {info.path}: results on it are not CIFAR-10 results"
            " (--data_dir names the folder with the real cifar-10-batches-py)"
        )
    else:
        print_rank0(f"data: CIFAR-10 in {info.path}")
    return train_set, test_set, info


def find_cifar10(data_dir: str | None, cache_dir: str | None, is_needed: bool = False) -> Path | None:
    """The folder of the images: in the folder that was named, else in the cache or in ~/data.

    Raises Refused when real data were asked for, by a folder or by `is_needed`, and are not there: generated
    ones would silently be another task.
    """
    if data_dir:
        named = Path(data_dir).expanduser()
        places = [named, named / FOLDER]
    else:
        places = [Path(cache_dir or default_cache_dir()) / FOLDER, Path.home() / "data" / FOLDER]
    for place in places:
        if (place / GENERATED).is_file() or all(
            (place / name).is_file() for name in (*TRAIN_FILES, *TEST_FILES)
        ):
            return place.absolute()
    if data_dir or is_needed:
        folder = data_dir or str(Path.home() / "data")
        fetch = f"from torchvision.datasets import CIFAR10; CIFAR10({folder!r}, download=True)"
        raise Refused(
            "file_not_found",
            f"no complete {FOLDER} in {data_dir or 'the usual places'}, seen from "
            f'{node_name()}; compute nodes do not download: run `python -c "{fetch}"` on a login node, or '
            "leave out data_dir to train on generated data",
        )
    return None


def read_cifar10(folder: Path) -> list[tuple[Array, Array]]:
    """Images and classes, for training and for the test, of the generated or the published files."""
    if (folder / GENERATED).is_file():
        return read_arrays(folder / GENERATED)
    sets = []
    for files in (TRAIN_FILES, TEST_FILES):
        parts = [_published(folder / name, md5) for name, md5 in files.items()]
        labels = np.concatenate([part["labels"] for part in parts])
        sets.append((_by_pixels(np.concatenate([part["data"] for part in parts])), labels))
    return sets


def _published(path: Path, md5: str) -> dict[str, Any]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TrainerError(f"{shown(path)}: cannot be read ({error.strerror})") from error
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise TrainerError(
            f"{shown(path)}: not the published CIFAR-10 file, or a damaged one; delete or replace it"
        )
    part: dict[str, Any] = _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
    return part


class _ArraysOnly(pickle.Unpickler):
    """Runs nothing that a pickle names, except what makes an array of numbers."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OF_ARRAYS:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no array")


_OF_ARRAYS = (("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"))


def _by_pixels(rows: Array) -> Array:
    """Images as (image, row, column, colour), of rows of numbers by colour."""
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def default_cache_dir() -> Path:
    """$COACH_HOME/cache, else $SCRATCH/coach/cache, else $XDG_CACHE_HOME/coach, else ~/.cache/coach."""
    if os.environ.get("COACH_HOME"):
        return Path(os.environ["COACH_HOME"]).expanduser() / "cache"
    if os.environ.get("SCRATCH"):
        return Path(os.environ["SCRATCH"]).absolute() / "coach" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "coach"


def generate_cifar10(cache_dir: Path, num_train: int = 10_000, num_test: int = 2_000) -> Path:
    """Make the generated set once and return its folder. Any number of processes may call this at once, on
    any number of nodes."""
    final = cache_dir.absolute() / f"cifar-10-generated-{num_train}-{num_test}-v{GENERATOR_VERSION}"

    def make(folder: Path, show_alive: Callable[[], None]) -> None:
        print_rank0(f"data: no CIFAR-10 found, generating {num_train + num_test} images in {final}")
        parts = []
        for seed, numbers in enumerate([*np.array_split(range(num_train), 5), range(num_test)]):
            parts.append(generate_images(len(numbers), seed))
            show_alive()
        train_images, train_labels = map(np.concatenate, zip(*parts[:-1]))  # noqa: B905 - no strict= in Python 3.9
        arrays = (_by_pixels(train_images), train_labels, _by_pixels(parts[-1][0]), parts[-1][1])
        np.savez(folder / GENERATED, **dict(zip(NAMES[0], arrays)))  # noqa: B905 - the same

    try:
        made_once(final, make)
    except OSError as error:
        raise TrainerError(
            f"{cache_dir}: cannot hold the generated data ({error}); --cache_dir names another folder"
        ) from error
    return final


def generate_images(num_images: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images as uint8 rows of 3x32x32, and their classes.

    A class is one of five textures (horizontal, vertical, diagonal, checkered, rings) in one of two scales.
    Place, phase, colours, contrast and noise are random, so no pixel tells a class by itself: a linear model
    learns little, a convolution much. Every texture is its own mirror image, because augmentation flips
    images.
    """
    random = np.random.default_rng(seed)
    labels = np.arange(num_images) % 10
    random.shuffle(labels)
    texture = (labels % 5)[:, None, None]

    def each(low: float, high: float) -> np.ndarray[Any, Any]:
        return random.uniform(low, high, (num_images, 1, 1)).astype(np.float32)

    y, x = np.mgrid[0:32, 0:32].astype(np.float32)[:, None] / 32
    x, y = x - each(0.3, 0.7), y - each(0.3, 0.7)  # the centre of the texture
    angle = each(-0.1, 0.1) + np.where(texture == 2, np.pi / 4 * np.sign(each(-1, 1)), 0)
    u, v = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    frequency = 2 * np.pi * np.where(labels[:, None, None] < 5, 2.5, 5.0) * each(0.9, 1.1)
    phase_u, phase_v = each(0, 2 * np.pi), each(0, 2 * np.pi)
    along_u, along_v = np.sin(frequency * u + phase_u), np.sin(frequency * v + phase_v)
    rings = np.sin(frequency * np.hypot(x, y) + phase_u)
    wave = np.choose(texture, [along_v, along_u, along_u, 1.4 * along_u * along_v, rings])
    wave = wave * np.exp(-(x**2 + y**2) / (2 * each(0.2, 0.35) ** 2))

    colour = random.uniform(0.3, 1.0, (num_images, 3, 1, 1)).astype(np.float32)
    background = random.uniform(0.3, 0.7, (num_images, 3, 1, 1)).astype(np.float32)
    noise = random.normal(0, 0.05, (num_images, 3, 32, 32)).astype(np.float32)
    images = np.clip(background + 0.5 * colour * wave[:, None] + noise, 0, 1)
    return (images * 255).astype(np.uint8).reshape(num_images, 3072), labels
