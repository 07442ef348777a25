"""The baseline on images that are read from their file one by one, as a large data set would be.

python trainers/drill_many_handles.py --epochs 1
"""

from __future__ import annotations

import argparse
import resource
from pathlib import Path
from typing import IO, Any

import baseline
from common.data import DatasetInfo, load_data
from common.distributed import run
from torch.utils.data import Dataset

MOST_FILES = 1024
"""The number of files that a batch job may have open on most clusters, whatever it is in a terminal."""


class FromFiles(Dataset[Any]):
    """Another data set, with the record of each image read from its file. An opened file is kept for the next
    epoch."""

    def __init__(self, images: Any, file: Path) -> None:
        self.images = images
        self.file = file
        self.opened: dict[int, IO[bytes]] = {}

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        if index not in self.opened:
            self.opened[index] = open(self.file, "rb")  # noqa: SIM115 - what is kept open is the point
        self.opened[index].read(3072)
        return self.images[index]


def load(args: argparse.Namespace) -> tuple[Dataset[Any], Dataset[Any], DatasetInfo]:
    train_set, test_set, info = load_data(args)
    return FromFiles(train_set, Path(info.path) / "data_batch_1"), test_set, info


baseline.load_data = load

if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES, hard))
    run(baseline.main)
