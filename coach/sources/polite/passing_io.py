"""A wrapper of an `Io`, for classes that only change how commands run."""

from __future__ import annotations

from pathlib import Path

from coach.sources.io import Io


class PassingIo:
    """Passes the clock and all file operations on. A subclass defines how a command runs."""

    def __init__(self, io: Io) -> None:
        self._io = io

    def now(self) -> float:
        return self._io.now()

    def read(self, path: Path, offset: int, limit: int) -> bytes:
        return self._io.read(path, offset, limit)

    def size(self, path: Path) -> int:
        return self._io.size(path)

    def modified_s(self, path: Path) -> float:
        return self._io.modified_s(path)

    def list_dir(self, path: Path) -> list[str]:
        return self._io.list_dir(path)

    def real_path(self, path: Path) -> Path:
        return self._io.real_path(path)
