"""How far the clock of a file server is from this machine's.

Ages of files are the difference of two clocks. On a shared file system they are not the same clock, so
whoever reads an age should know by how much it is off.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Skew:
    """The file server's clock minus ours, known to within `error_s`."""

    skew_s: float
    error_s: float


def read_skew(directory: Path) -> Skew:
    """Touch a file of no name in a directory, and compare. Raises OSError where none can be made."""
    with tempfile.TemporaryFile(dir=directory, prefix=".coach-clock-") as file:
        before_s = time.time()
        os.utime(file.fileno())  # without times: the server puts its own
        touched_s = os.fstat(file.fileno()).st_mtime
        after_s = time.time()
    # A kernel stamps files with its last tick, a few milliseconds ago.
    return Skew(touched_s - (before_s + after_s) / 2, (after_s - before_s) / 2 + 0.01)
