"""The baseline on images whose labels are looked up one by one.

python trainers/drill_long_epochs.py --epochs 1
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import baseline
from common.data import DatasetInfo, load_data
from common.distributed import run
from torch.utils.data import Dataset


class LookedUp(Dataset[Any]):
    """Another data set, with the label of each image from the server that has the newest ones."""

    def __init__(self, images: Any) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        image, label = self.images[index]
        time.sleep(0.005)  # the way there and back
        return image, label


def load(args: argparse.Namespace) -> tuple[Dataset[Any], Dataset[Any], DatasetInfo]:
    train_set, test_set, info = load_data(args)
    return LookedUp(train_set), test_set, info


baseline.load_data = load

if __name__ == "__main__":
    run(baseline.main)
