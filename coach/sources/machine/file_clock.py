"""Measure the difference between a file server's clock and this machine's clock.

The age of a file is the difference of two clocks. On a shared file system these are different clocks, so a
reader of an age needs to know its error.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Skew:
    """The file server's clock minus ours, in seconds, with an error of at most `error_s`."""

    skew_s: float
    error_s: float


def read_skew(directory: Path) -> Skew:
    """Touch an unnamed file in a directory and compare the clocks. Raises OSError if no file can be
    created."""
    with tempfile.TemporaryFile(dir=directory, prefix=".coach-clock-") as file:
        before_s = time.time()
        os.utime(file.fileno())  # without times: the server sets its own
        touched_s = os.fstat(file.fileno()).st_mtime
        after_s = time.time()
    # The kernel stamps files with the time of its last tick, a few milliseconds ago.
    return Skew(touched_s - (before_s + after_s) / 2, (after_s - before_s) / 2 + 0.01)
