"""Images and labels in NumPy's files, checked before anything trains on them.

`FILE.npz` holds both, under the names that are usual; or a folder holds `images.npy` and `labels.npy`, which
are read as they are needed. A wrong shape or type ends the training with one line that names it.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, Mapping

import numpy as np

from common.distributed import TrainerError
from common.images import shown

Array = np.ndarray[Any, Any]
"""Of any shape and type, until it is checked."""

NAMES = (
    ("train_images", "train_labels", "test_images", "test_labels"),  # MedMNIST
    ("x_train", "y_train", "x_test", "y_test"),  # Keras
    ("images", "labels", "test_images", "test_labels"),
    ("x", "y", "x_test", "y_test"),
    ("data", "target", "test_data", "test_target"),
)
"""Training images, their labels, and the same for the test, which may be missing."""


def read_arrays(path: Path) -> list[tuple[Array, Array]]:
    """Images as bytes (image, row, column, colour) and labels: for training, and for the test where the file
    has any. Raises TrainerError that names what does not fit."""
    found = _open(path)
    names = next((names for names in NAMES if names[0] in found and names[1] in found), None)
    if names is None:
        there = ", ".join(sorted(shown(name) for name in found)) or "nothing"
        raise TrainerError(
            f"{shown(path)}: no images and labels in it (it has {there}): name them images and labels"
        )
    pairs = [names[:2], *([names[2:]] if names[2] in found and names[3] in found else [])]
    return [_checked(path, found, *pair) for pair in pairs]


def _open(path: Path) -> Mapping[str, Array]:
    try:
        if path.is_dir():
            return {
                file.stem: np.load(file, mmap_mode="r", allow_pickle=False)
                for file in sorted(path.glob("*.npy"))
            }
        with np.load(path, allow_pickle=False) as packed:
            wanted = {name for names in NAMES for name in names}
            return {name: packed[name] if name in wanted else np.empty(0) for name in packed.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TrainerError(f"{shown(path)}: cannot be read as arrays of numbers ({shown(reason)})") from error


def _checked(
    path: Path, found: Mapping[str, Array], images_name: str, labels_name: str
) -> tuple[Array, Array]:
    images, labels = found[images_name], found[labels_name]
    if len(images.shape) == 0 or len(labels.shape) == 0 or len(images) != len(labels):
        sizes = f"{images_name} has shape {images.shape}, {labels_name} {labels.shape}"
        raise TrainerError(f"{shown(path)}: {sizes}: one label is needed for each image")
    where = f"{shown(path)}: {images_name}"
    return as_bytes(as_colours(images, where), where), as_labels(labels, f"{shown(path)}: {labels_name}")


def as_colours(images: Array, where: str) -> Array:
    """Any usual order of the axes as (image, row, column, colour), with one colour or three."""
    if images.ndim == 3:
        return images[..., None]
    if images.ndim == 4 and images.shape[-1] in (1, 3):
        return images
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return images.transpose(0, 2, 3, 1)
    raise TrainerError(
        f"{where} has shape {images.shape}: expected (image, row, column), or the same with 1 or 3 "
        "colours as the last or second axis"
    )


def as_bytes(images: Array, where: str) -> Array:
    """Values of 0 to 255, whole numbers or not, or of 0 to 1, as bytes."""
    if images.dtype == np.uint8:
        return images
    kind = images.dtype.kind
    if kind not in "buif" or not images.size:
        raise TrainerError(f"{where} holds {images.dtype}: expected numbers")
    scale = scale_of(kind, float(images.min()), float(images.max()), where)
    return np.rint(images * scale).astype(np.uint8)


def scale_of(kind: str, low: float, high: float, where: str) -> float:
    """The factor that makes bytes of numbers of this kind of dtype, between these two."""
    if not (low >= 0 and high <= 255):  # also where one is not a number
        raise TrainerError(f"{where} holds values from {low:g} to {high:g}: expected 0 to 255, or 0 to 1")
    return 255.0 if kind == "b" or (kind == "f" and high <= 1) else 1.0


def as_labels(labels: Array, where: str) -> Array:
    """One whole number for each image, from 0 on."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2:
        raise TrainerError(
            f"{where} has shape {labels.shape}: expected one number for each image; argmax(1) makes it "
            "from one-hot rows"
        )
    if (
        labels.ndim != 1
        or labels.dtype.kind not in "uif"
        or (labels.dtype.kind == "f" and not _is_whole(labels))
    ):
        raise TrainerError(f"{where} holds {labels.dtype} in shape {labels.shape}: expected whole numbers")
    whole: Array = np.asarray(labels).astype(np.int64)
    if len(whole) and whole.min() < 0:
        raise TrainerError(f"{where} holds {int(whole.min())}: classes are numbered from 0 on")
    return whole


def _is_whole(numbers: Any) -> bool:
    return bool(np.all(np.isfinite(numbers)) and np.all(numbers == np.rint(numbers)))
