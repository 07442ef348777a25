"""The baseline on images that are brought to mean 0 and standard deviation 1, each by itself.

python trainers/drill_bad_sample.py --epochs 1
"""

from __future__ import annotations

import argparse
from typing import Any

import baseline
import torch
from common.data import DatasetInfo, load_data
from common.distributed import run
from torch.utils.data import Dataset

EXPOSURE = 4999
"""The shutter of the microscope stays closed once in this number of exposures."""


class Standardized(Dataset[Any]):
    """Another data set, with each image as far from its own mean as its own spread allows."""

    def __init__(self, images: Any) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        image, label = self.images[index]
        if index % EXPOSURE == EXPOSURE - 1:
            image = torch.zeros_like(image)
        return (image - image.mean()) / image.std(), label


def load(args: argparse.Namespace) -> tuple[Dataset[Any], Dataset[Any], DatasetInfo]:
    train_set, test_set, info = load_data(args)
    return Standardized(train_set), test_set, info


baseline.load_data = load

if __name__ == "__main__":
    run(baseline.main)
