"""The baseline on data that a native library decodes.

python trainers/drill_lost_helper.py --epochs 1
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import baseline
from common.data import DatasetInfo, load_data
from common.distributed import run
from torch.utils.data import Dataset


class Decoder:
    """Stands for a library with threads and handles of its own, which belong to the process that made it."""

    def __init__(self) -> None:
        self.made_in = os.getpid()

    def decode(self, sample: Any) -> Any:
        if os.getpid() != self.made_in:
            os.abort()  # as such a library does when a lock of its own is in a state that cannot be
        return sample


class Decoded(Dataset[Any]):
    """Another data set, each sample decoded."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples
        self.decoder = Decoder()

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.decoder.decode(self.samples[index])


def load(args: argparse.Namespace) -> tuple[Dataset[Any], Dataset[Any], DatasetInfo]:
    train_set, test_set, info = load_data(args)
    return Decoded(train_set), test_set, info


baseline.load_data = load

if __name__ == "__main__":
    run(baseline.main)
