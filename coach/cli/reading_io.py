"""An Io that reports the file that it reads, and the progress, if reading takes long.

A log of gigabytes takes a minute to read. After a second and a half the user gets a message, and can stop it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from coach.analysis.spelling.sizes import format_bytes
from coach.cli.text import printable
from coach.config import Settings
from coach.sources.io import Io as Io
from coach.sources.io import SystemIo, scrubbed_environment

AFTER_S = 1.5
EVERY_S = 5.0


class ReadingIo(SystemIo):
    """`tell` gets a line every few seconds while a file is read."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        timeout_s: float,
        tell: Callable[[str], object],
        after_s: float = AFTER_S,
        every_s: float = EVERY_S,
    ) -> None:
        super().__init__(env, timeout_s=timeout_s)
        self._tell = tell
        self._every_s = every_s
        self._due_s = time.monotonic() + after_s

    def read(self, path: Path, offset: int, limit: int) -> bytes:
        data = super().read(path, offset, limit)
        now_s = time.monotonic()
        if offset and now_s >= self._due_s:
            self._due_s = now_s + self._every_s
            told = os.stat(path).st_size  # noqa: PTH116 (the file was just read)
            self._tell(f"reading {path}: {format_bytes(offset)} of {format_bytes(told)} so far")
        return data


def reading_io(settings: Settings) -> ReadingIo:
    """A ReadingIo with this process's environment; its lines go to standard error."""

    def tell(line: str) -> None:
        print(f"coach: {printable(line)}", file=sys.stderr, flush=True)

    return ReadingIo(scrubbed_environment(os.environ), timeout_s=settings.slurm_timeout_s, tell=tell)
