"""Text that is on every machine: the sources of Python's own standard library, as bytes."""

from __future__ import annotations

import platform
import sysconfig
from pathlib import Path
from typing import Any, Iterator

import torch
from torch.utils.data import Dataset, Subset

SEQUENCE_LENGTH = 128
MOST_BYTES = 4_000_000
"""Enough for a lesson; all of it is some 20 MB."""


class ByteSequences(Dataset[Any]):
    """Item i: `length` bytes from position i x length, and the same one byte later."""

    def __init__(self, data: torch.Tensor, length: int) -> None:
        self.data = data
        self.length = length

    def __len__(self) -> int:
        return (len(self.data) - 1) // self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self.length
        window = self.data[start : start + self.length + 1].long()
        return window[:-1], window[1:]


def standard_library_bytes(most_bytes: int = MOST_BYTES) -> torch.Tensor:
    """The sources one after the other by name, without tests, cut at `most_bytes`: a uint8 tensor."""
    text = bytearray()
    for path in standard_library_files():
        text += path.read_bytes()
        if len(text) >= most_bytes:
            break
    return torch.frombuffer(text[:most_bytes], dtype=torch.uint8)


def standard_library_files() -> Iterator[Path]:
    """Its sources by name, without tests."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.glob("*.py")) + sorted(root.glob("[a-z]*/*.py")):
        if "site-packages" not in path.parts and "test" not in path.parent.name:
            yield path


def load_text(
    num_train_samples: int = 0, sequence_length: int = SEQUENCE_LENGTH
) -> tuple[Dataset[Any], Dataset[Any], str, str]:
    """Training set, test set (the last tenth, at most 500 sequences), the name of the text and where it
    lies."""
    data = standard_library_bytes()
    cut = len(data) * 9 // 10
    train_set: Dataset[Any] = ByteSequences(data[:cut], sequence_length)
    test_set: Dataset[Any] = ByteSequences(data[cut:], sequence_length)
    test_set = Subset(test_set, range(min(500, len(test_set))))  # type: ignore[arg-type] # it has a length
    if 0 < num_train_samples < len(train_set):  # type: ignore[arg-type] # the same
        train_set = Subset(train_set, range(num_train_samples))
    name = f"standard library of Python {platform.python_version()}, {len(data):,} bytes"
    return train_set, test_set, name, sysconfig.get_path("stdlib")
