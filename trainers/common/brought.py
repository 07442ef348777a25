"""Data that somebody brings: a folder of images by class, arrays, or a data set of Hugging Face on disk. And
the digits that lie beside this file.

The files at a path tell its kind. Data that do not fit end the training with one line: no run starts on other
data than were meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Sequence

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch.utils.data import Dataset, Subset

from common.arrays import Array, as_colours, as_labels, read_arrays, scale_of
from common.digits import digits_file, load_digits
from common.distributed import Refused, TrainerError, node_name, print_rank0
from common.images import AUGMENTATIONS, ImagesInfo, shown, transforms
from common.vision import datasets, v2

HELD_OUT = 5
"""Where there is no test set, one image in so many of each class is kept for it."""
_TEST_NAMES = ("test", "val", "valid", "validation")
_NUM_MEASURED = 500
"""Images of which the mean and the spread of the colours are taken."""
_NUM_LOOKED_AT = 50
"""Rows of numbers of which the range is taken."""


class Images(Dataset[Any]):
    """Images and their classes, made ready by `transform`. `pick` gives the image of an index."""

    def __init__(self, pick: Callable[[int], Any], targets: Array) -> None:
        self.pick, self.targets = pick, targets
        self.transform: Callable[[Any], Any] = _unchanged

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.transform(self.pick(index)), int(self.targets[index])


@dataclass(frozen=True)
class _Found:
    """The data at a path. `is_natural`: its images may be mirrored without becoming another thing."""

    name: str
    path: str
    train: Images
    test: Images | None
    is_natural: bool
    class_names: Sequence[str] = ()


def load_brought(
    data: str, image_size: int, augment: str, num_train_samples: int = 0
) -> tuple[Dataset[Any], Dataset[Any], ImagesInfo]:
    """The training set (augmented), the test set, and their description. Raises TrainerError, or Refused
    where this node lacks a package for them."""
    found = _digits() if data == "digits" else _at(Path(data).expanduser().absolute())
    train, test, how = _split(found)
    num_classes = _count_classes(found, train, test)
    chosen = ("crop_flip" if found.is_natural else "crop") if augment == "auto" else augment
    fit = [_as_colours, v2.Resize(image_size, antialias=True), v2.CenterCrop(image_size)]
    mean, std = _statistics(train, v2.Compose(fit))
    found.train.transform, test_transform = transforms(chosen, image_size, fit, mean, std)
    if found.test is None:  # the same images, without augmentation
        test = Subset(_with(found.train, test_transform), test.indices)
    else:
        found.test.transform = test_transform
    if 0 < num_train_samples < len(train):
        train = Subset(train, range(num_train_samples))
    info = ImagesInfo(found.name, found.path, False, num_classes, image_size)
    print_rank0(
        f"data: {info.name} in {shown(found.path)}: {len(train):,} training and {len(test):,} test images"
        f" of {num_classes} classes{how}, made {image_size}x{image_size}, trained on {AUGMENTATIONS[chosen]}"
    )
    return train, test, info


def _digits() -> _Found:
    images, labels, test_images, test_labels = load_digits()
    return _Found(
        "UCI handwritten digits",
        str(digits_file()),
        _of_array(images[..., None], labels),
        _of_array(test_images[..., None], test_labels),
        is_natural=False,
    )


def _at(path: Path) -> _Found:
    if path.is_file() and path.suffix == ".npz":
        return _arrays(path)
    if not path.is_dir():
        what = "it is not an .npz file" if path.exists() else "it is not there"
        raise Refused(
            "file_not_found",
            f"data {shown(path)}, seen from {node_name()}: {what}; expected auto, cifar10, generated, "
            "digits, an .npz file or a folder",
        )
    if (path / "images.npy").exists() or (path / "train_images.npy").exists():
        return _arrays(path)
    if (path / "dataset_dict.json").exists() or (path / "dataset_info.json").exists():
        return _hugging_face(path)
    return _folders(path)


def _name(kind: str, path: Path) -> str:
    return f"{kind} {shown(path.name)}"


def _arrays(path: Path) -> _Found:
    pairs = read_arrays(path)
    for images, labels in pairs:
        if images.shape[1] < 1 or images.shape[2] < 1 or not len(labels):
            raise TrainerError(f"{shown(path)}: images of shape {images.shape}: they hold no data")
    sets = [_of_array(images, labels) for images, labels in pairs]
    is_natural = pairs[0][0].shape[-1] == 3
    return _Found(_name("arrays", path), str(path), sets[0], sets[1] if len(sets) > 1 else None, is_natural)


def _of_array(images: Array, labels: Array) -> Images:
    return Images(_Pixels(images), labels)


class _Pixels:
    """Gives images of an array as tensors (colour, row, column). A class, as processes that load data get a
    copy of it."""

    def __init__(self, images: Array) -> None:
        self.images = images

    def __call__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.array(self.images[index])).permute(2, 0, 1)


class _ClassFolders(datasets.ImageFolder):
    """Without hidden folders: tools leave some, and none is a class."""

    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        names = _folders_in(Path(directory))
        if not names:
            raise FileNotFoundError("it has no folders, one for each class")
        return names, {name: number for number, name in enumerate(names)}


def _folders_in(folder: Path) -> list[str]:
    """The names of its visible folders, ordered."""
    try:
        return sorted(
            entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")
        )
    except OSError as error:
        raise TrainerError(f"{shown(folder)}: cannot be listed ({error.strerror})") from error


def _folders(path: Path) -> _Found:
    names = _folders_in(path)
    tests = [path / name for name in _TEST_NAMES if name in names]
    train, test = path, None  # a class may be called `test`
    if "train" in names and (tests or names == ["train"] or _folders_in(path / "train")):  # or `train`
        train = path / "train"
        # The images of a published test set often have no classes.
        test = next((folder for folder in tests if _folders_in(folder)), next(iter(tests), None))
    sets = [_class_folders(folder) for folder in (train, test) if folder is not None]
    if len(sets) == 2 and sets[0].classes != sets[1].classes:
        only = sorted(set(sets[0].classes) ^ set(sets[1].classes))
        raise TrainerError(
            f"{shown(path)}: {train.name} and {shown(test.name if test else '')} have other classes: "
            f"{shown(', '.join(only[:3]))} is in only one of them"
        )
    images = [Images(_Files(each), np.asarray(each.targets)) for each in sets]
    return _Found(
        _name("image folder", path),
        str(path),
        images[0],
        images[1] if len(images) > 1 else None,
        is_natural=True,
        class_names=sets[0].classes,
    )


def _class_folders(folder: Path) -> _ClassFolders:
    try:
        return _ClassFolders(str(folder))
    except OSError as error:
        reason = str(error).splitlines()[0].replace(f"{folder}/", "")
        raise TrainerError(f"{shown(folder)}: not a folder of images by class: {shown(reason)}") from error


class _Files:
    """Gives the image files of a folder, in three colours."""

    def __init__(self, folder: _ClassFolders) -> None:
        self.folder = folder

    def __call__(self, index: int) -> Any:
        path, _ = self.folder.samples[index]
        try:
            with Image.open(path) as image:
                return _of_eight_bits(image, shown(path)).convert("RGB")
        except UnidentifiedImageError as error:
            raise TrainerError(f"{shown(path)}: cannot be read as an image") from error
        except (
            OSError,
            SyntaxError,
            ValueError,
            Image.DecompressionBombError,
        ) as error:  # as formats have it
            reason = shown((str(error).splitlines() or [type(error).__name__])[0])
            raise TrainerError(f"{shown(path)}: cannot be read as an image ({reason})") from error


def _hugging_face(path: Path) -> _Found:
    try:
        import datasets as hugging_face  # only for those who bring such a set
    except ImportError as error:
        raise Refused(
            "module_not_found",
            f"{error}: {shown(path)} is a data set of Hugging Face; pip install datasets, in the environment "
            "that trains",
        ) from error
    try:
        loaded = hugging_face.load_from_disk(str(path))
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TrainerError(
            f"{shown(path)}: not a data set that was saved to disk ({shown(reason)})"
        ) from error
    splits = dict(loaded) if isinstance(loaded, dict) else {"train": loaded}
    if "train" not in splits:
        raise TrainerError(
            f"{shown(path)}: no split called train (it has {shown(', '.join(splits)) or 'none'})"
        )
    train = _columns(path, splits["train"], "train", hugging_face)
    tests = (
        name for name in _TEST_NAMES if name in splits and not _is_unlabelled(splits[name], hugging_face)
    )
    name = next(tests, None)
    test = None if name is None else _columns(path, splits[name], name, hugging_face)
    return _Found(_name("Hugging Face set", path), str(path), train, test, is_natural=True)


_IMAGE_NAMES = ("image", "img", "images")
_LABEL_NAMES = ("label", "labels", "fine_label", "target", "class")


def _column_names(split: Any, hugging_face: Any) -> tuple[str | None, str | None]:
    """The columns with images and with labels: by their types, else by the usual names."""
    features = split.features
    images = [name for name, kind in features.items() if isinstance(kind, hugging_face.Image)]
    labels = [name for name in _LABEL_NAMES if name in features]
    labels += [name for name, kind in features.items() if isinstance(kind, hugging_face.ClassLabel)]
    images += [name for name in _IMAGE_NAMES if name in features]
    return next(iter(images), None), next(iter(labels), None)


def _is_unlabelled(split: Any, hugging_face: Any) -> bool:
    """True of a test split whose labels are kept back, as -1."""
    _, label = _column_names(split, hugging_face)
    numbers = np.asarray(split[label][:]) if label is not None and len(split) else np.zeros(1)
    return numbers.dtype.kind == "i" and bool((numbers < 0).all())


def _columns(path: Path, split: Any, name: str, hugging_face: Any) -> Images:
    where = f"{shown(path)}, split {shown(name)}"
    image, label = _column_names(split, hugging_face)
    for what, column in (("images", image), ("labels", label)):
        if column is None:
            there = shown(", ".join(split.column_names))
            raise TrainerError(
                f"{where}: no column with {what} (it has {there}): name one image, the other label"
            )
    if not len(split):
        raise TrainerError(f"{where}: it has no rows")
    numbers = np.asarray(split[label][:])
    if numbers.dtype.kind not in "uif":
        raise TrainerError(
            f"{where}, column {shown(label)}: text, not numbers; class_encode_column({shown(label)!r}) of "
            "datasets numbers it"
        )
    rows = _Rows(split, str(image), f"{where}, column {shown(image)}")
    return Images(rows, as_labels(numbers, f"{where}, column {shown(label)}"))


class _Rows:
    """Gives the images of a column: pictures, or numbers, which become bytes as those of arrays do."""

    def __init__(self, split: Any, column: str, where: str) -> None:
        self.split, self.column, self.where = split, column, where
        looked_at = [self._at(index) for index in _spread_over(len(split), _NUM_LOOKED_AT)]
        numbers = [np.asarray(image) for image in looked_at if isinstance(image, (list, np.ndarray))]
        self.scale = 1.0
        if numbers:
            low, high = min(float(each.min()) for each in numbers), max(float(each.max()) for each in numbers)
            self.scale = scale_of(numbers[0].dtype.kind, low, high, where)

    def _at(self, index: int) -> Any:
        return self.split[index][self.column]

    def __call__(self, index: int) -> Any:
        image, where = self._at(index), f"{self.where}, row {index}"
        if hasattr(image, "convert"):
            return _of_eight_bits(image, where)
        if not isinstance(image, (list, np.ndarray)):
            raise TrainerError(
                f"{where}: neither a picture nor numbers; cast_column({shown(self.column)!r}, Image()) of "
                "datasets makes pictures of paths"
            )
        numbers = np.asarray(image)
        if numbers.ndim == 3 and numbers.shape[-1] == 4:
            numbers = numbers[..., :3]  # without transparency
        numbers = as_colours(numbers[None], where)[0]
        scaled = numbers if numbers.dtype == np.uint8 else np.rint(numbers * self.scale)
        if not (scaled.min() >= 0 and scaled.max() <= 255):
            raise TrainerError(
                f"{where} holds values from {numbers.min():g} to {numbers.max():g}, unlike others of the set"
            )
        return torch.from_numpy(np.array(scaled, dtype=np.uint8)).permute(2, 0, 1)


def _of_eight_bits(image: Any, where: str) -> Any:
    """The picture. PIL makes colours of wider numbers by cutting them off at 255: all would be white."""
    if image.mode.startswith(("I", "F")):
        raise TrainerError(
            f"{where}: its numbers are wider than 8 bits (mode {image.mode} of PIL): make 8 bits of them, or "
            "bring them as arrays"
        )
    return image


def _split(found: _Found) -> tuple[Any, Any, str]:
    """Training set, test set, and how the second came about, in words."""
    if found.test is not None:
        return found.train, found.test, ""
    seen: dict[int, int] = {}
    train: list[int] = []
    test: list[int] = []
    # In an order that is the same on every rank and in every run: files may lie sorted by anything.
    for index in np.random.default_rng(0).permutation(len(found.train)).tolist():
        label = int(found.train.targets[index])
        seen[label] = seen.get(label, 0) + 1
        (test if seen[label] % HELD_OUT == 0 else train).append(index)
    if not test:
        raise TrainerError(
            f"{shown(found.path)}: no test set, and no class has the {HELD_OUT} images that are needed to "
            "keep one for it"
        )
    return (
        Subset(found.train, sorted(train)),
        Subset(found.train, sorted(test)),
        f" (one in {HELD_OUT} kept for the test)",
    )


def _count_classes(found: _Found, train: Any, test: Any) -> int:
    """One more than the highest label. Raises TrainerError where the labels cannot be meant so."""
    trained = np.unique(found.train.targets)
    tested = trained if found.test is None else np.unique(found.test.targets)
    num_classes = int(trained[-1]) + 1
    where = shown(found.path)
    if len(trained) < 2:
        raise TrainerError(f"{where}: all training images are of one class: a classifier needs two or more")
    if int(tested[-1]) >= num_classes:
        raise TrainerError(
            f"{where}: the test set has label {int(tested[-1])}, but the last label of the training set is "
            f"{num_classes - 1}"
        )
    if num_classes > max(1000, len(train)):
        raise TrainerError(
            f"{where}: labels go up to {num_classes - 1}, but only {len(trained)} are used: number the "
            "classes from 0 on"
        )
    return num_classes


def _statistics(train: Any, fit: Callable[[Any], Any]) -> tuple[list[float], list[float]]:
    """Mean and spread of each colour, over some images from everywhere in the set: the same on all ranks."""
    to_tensor = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    images = _images_of(train)
    pixels = torch.stack([to_tensor(fit(images(index))) for index in _spread_over(len(train), _NUM_MEASURED)])
    spread = pixels.std(dim=(0, 2, 3)).clamp(min=1e-3)  # of images without any difference
    return pixels.mean(dim=(0, 2, 3)).tolist(), spread.tolist()


def _spread_over(num: int, at_most: int) -> list[int]:
    """Numbers below `num` at equal distances, `at_most` so many."""
    found: list[int] = np.linspace(0, num - 1, min(at_most, num)).astype(int).tolist()
    return found


def _images_of(samples: Any) -> Callable[[int], Any]:
    """Gives the images of a set, or of a part of one, as they are."""
    if isinstance(samples, Subset):
        return lambda index: samples.dataset.pick(samples.indices[index])
    return samples.pick  # type: ignore[no-any-return] # of Images


def _with(images: Images, transform: Callable[[Any], Any]) -> Images:
    same = Images(images.pick, images.targets)
    same.transform = transform
    return same


def _unchanged(image: Any) -> Any:
    return image


def _as_colours(image: Any) -> Any:
    """Three colours, whatever the image has: grey is each of them, transparency is left out."""
    if not isinstance(image, torch.Tensor):
        return image.convert("RGB")
    image = image[None] if image.ndim == 2 else image
    return image[:3] if len(image) > 1 else image.expand(3, -1, -1)
