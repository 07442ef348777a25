"""The description of a set of images, and the changes to an image before a model reads it.

Every set, wherever it comes from, gives images of three colours and one size, and says its number of classes:
a model follows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

import torch

from common.vision import v2


@dataclass(frozen=True)
class DatasetInfo:
    """The data of a training, for the `start` event and the reader of the output."""

    name: str
    path: str
    is_synthetic: bool

    @property
    def caveat(self) -> str:
        """The words that stand beside every result on these data."""
        return " (generated data)" if self.is_synthetic else ""


@dataclass(frozen=True)
class ImagesInfo(DatasetInfo):
    """Images of `num_classes` classes."""

    num_classes: int = 10
    image_size: int = 32
    """Pixels along a side, as the model gets them. Of no meaning for bytes of text."""

    @property
    def caveat(self) -> str:
        if self.is_synthetic:
            return " (generated data, not CIFAR-10)"
        return "" if self.name == "CIFAR-10" else f" ({self.name})"


AUGMENTATIONS = {
    "none": "as they are",
    "crop": "shifted at random",
    "crop_flip": "shifted and mirrored at random",
    "strong": "shifted, mirrored, and changed by one random operation each",
}
"""Name → its changes to the training images, in words."""


def transforms(
    augment: str, image_size: int, fit: Sequence[Any], mean: Sequence[float], std: Sequence[float]
) -> tuple[v2.Compose, v2.Compose]:
    """The transforms of a training image, and of a test image. `fit` makes them square, of the given size."""
    shift = [v2.RandomCrop(image_size, padding=image_size // 8)]
    mirror = [v2.RandomHorizontalFlip()]
    chosen = {
        "none": [],
        "crop": shift,
        "crop_flip": shift + mirror,
        "strong": [*shift, *mirror, v2.TrivialAugmentWide()],
    }[augment]
    normalize = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(list(mean), list(std))]
    return v2.Compose([*fit, *chosen, *normalize]), v2.Compose([*fit, *normalize])


def shown(text: object) -> str:
    """Other people's text for a terminal: each unprintable character becomes its escape."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "backslashreplace").decode()
        for letter in str(text).encode("utf-8", "backslashreplace").decode()
    )
