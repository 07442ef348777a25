"""CIFAR-10: the real images where they are found, otherwise generated ones in the same files and format.

Compute nodes often have no internet, and a lesson must not fail for want of 170 MB. The generated set is
learnable, and every result on it says that it is not CIFAR-10. Everything reads it through
torchvision.datasets.CIFAR10, like the real one.
"""

from __future__ import annotations

import argparse
import io
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable, ClassVar

import numpy as np
from torch.utils.data import Dataset, Subset

from common.brought import load_brought
from common.distributed import Refused, TrainerError, node_name, print_rank0
from common.images import DatasetInfo as DatasetInfo
from common.images import ImagesInfo as ImagesInfo
from common.images import shown, transforms
from common.once import one_at_a_time
from common.text import load_text
from common.vision import datasets, v2

CIFAR10_KINDS = ("auto", "cifar10", "generated")
FOLDER = "cifar-10-batches-py"
MARKER = "SYNTHETIC"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FILES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
GENERATOR_VERSION = 2
"""Goes up with every change of the images: a set that lies in a cache is never taken for another."""


class GeneratedCIFAR10(datasets.CIFAR10):
    """The generated files: as torchvision reads the real ones, without the published checksums."""

    meta: ClassVar = {**datasets.CIFAR10.meta, "md5": None}
    train_list: ClassVar = [[name, None] for name, _ in datasets.CIFAR10.train_list]
    test_list: ClassVar = [[name, None] for name, _ in datasets.CIFAR10.test_list]


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
    root = None if kind == "generated" else find_cifar10(data_dir, is_needed=kind == "cifar10")
    if root is None:
        root = generate_cifar10(Path(cache_dir) if cache_dir else default_cache_dir())
    is_synthetic = (root / FOLDER / MARKER).exists()
    fit = [] if image_size == 32 else [v2.Resize(image_size)]
    ready, as_it_is = transforms("crop_flip" if augment == "auto" else augment, image_size, fit, MEAN, STD)
    files = GeneratedCIFAR10 if is_synthetic else datasets.CIFAR10
    try:
        train_set: Dataset[Any] = files(str(root), train=True, transform=ready)
        test_set: Dataset[Any] = files(str(root), train=False, transform=as_it_is)
    except Exception as error:  # a damaged pickle raises almost any
        reason = shown((str(error).splitlines() or [type(error).__name__])[0])
        raise TrainerError(
            f"{root / FOLDER}: not the published CIFAR-10 files, or damaged ({reason}); delete or replace "
            "them"
        ) from error
    if 0 < num_train_samples < len(train_set):  # type: ignore[arg-type] # CIFAR10 has a length
        train_set = Subset(train_set, range(num_train_samples))
    info = ImagesInfo(
        "CIFAR-10 (generated stand-in)" if is_synthetic else "CIFAR-10",
        str(root / FOLDER),
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


def find_cifar10(data_dir: str | None, is_needed: bool = False) -> Path | None:
    """The folder that holds cifar-10-batches-py: the one that was named, else the usual places.

    Raises Refused when real data were asked for, by a folder or by `is_needed`, and are not there: generated
    ones would silently be another task.
    """
    if data_dir:
        named = Path(data_dir).expanduser()
        places = [named, named.parent] if named.name == FOLDER else [named]
    else:
        homes = [os.environ.get(name) for name in ("SLURM_TMPDIR", "SCRATCH", "HOME")]
        places = [Path("data"), *(Path(home) / "data" for home in homes if home)]
    for place in places:
        if all((place / FOLDER / name).is_file() for name in FILES):
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
    name = f"cifar-10-generated-{num_train}-{num_test}-v{GENERATOR_VERSION}"
    final = cache_dir.absolute() / name
    if final.exists():
        return final
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(final.with_name(f".{final.name}.lock"), final.exists) as show_alive:
            if not final.exists():
                print_rank0(f"data: no CIFAR-10 found, generating {num_train + num_test} images in {final}")
                _generate(final, num_train, num_test, show_alive)
    except OSError as error:
        raise TrainerError(
            f"{cache_dir}: cannot hold the generated data ({error}); --cache_dir names another folder"
        ) from error
    return final


def _generate(final: Path, num_train: int, num_test: int, show_alive: Callable[[], None]) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    try:
        folder = unfinished / FOLDER
        folder.mkdir()
        sizes = [len(part) for part in np.array_split(range(num_train), 5)] + [num_test]
        for seed, (name, size) in enumerate(zip(FILES, sizes)):  # noqa: B905 - no strict= in Python 3.9
            images, labels = generate_images(size, seed)
            _write_batch(folder / name, images, labels, f"generated, {name}")
            show_alive()
        meta = {
            b"num_cases_per_batch": sizes[0],
            b"label_names": [name.encode() for name in CLASSES],
            b"num_vis": 3072,
        }
        (folder / FILES[-1]).write_bytes(_python2_pickle(meta))
        (folder / MARKER).write_text(
            "Generated images in the format of CIFAR-10. Results on them are not CIFAR-10 results.\n"
        )
        try:
            os.rename(unfinished, final)
        except OSError:
            if not final.exists():  # otherwise another process was first, and made the same
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


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


def _write_batch(path: Path, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], title: str) -> None:
    names = [f"{CLASSES[label]}_s_{number:06d}.png".encode() for number, label in enumerate(labels)]
    batch = {b"batch_label": title.encode(), b"labels": labels.tolist(), b"data": images, b"filenames": names}
    path.write_bytes(_python2_pickle(batch))


class _Python2Pickler(pickle._Pickler):  # type: ignore[name-defined,misc] # the pickler in Python, whose dispatch can be changed
    """Writes bytes as Python 2 wrote its strings, as the real files have them: torchvision (latin1) and
    loaders of bytes read both."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined] # the same

    def _save_bytes(self, data: bytes) -> None:
        if len(data) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(data)]) + data)
        else:
            self.write(pickle.BINSTRING + len(data).to_bytes(4, "little") + data)
        self.memoize(data)

    dispatch[bytes] = _save_bytes


def _python2_pickle(value: dict[bytes, Any]) -> bytes:
    file = io.BytesIO()
    _Python2Pickler(file, protocol=2).dump(value)
    # The module's name as in the real files: NumPy 1 does not know its new one, NumPy 2 knows both.
    return file.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n", 1)
