"""An Io in memory: files that a test writes, truncates and removes, prepared answers of commands, and a
settable clock."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from coach.sources.io import COMMAND_TIMEOUT_S, CommandResult, Query


class FakeIo:
    """Directories follow from the files in them. `reads` holds (path, offset, number of bytes) of every
    read."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s
        self.files: dict[str, bytes] = {}
        self.modified: dict[str, float] = {}
        """Modification time of each file; the default is now."""
        self.answers: dict[str, Callable[[Query], CommandResult]] = {}
        self.failing: dict[str, int] = {}
        """Path → errno."""
        self.reads: list[tuple[str, int, int]] = []

    def write(self, path: str, data: bytes) -> None:
        self.files[path] = data
        self.modified[path] = self.now_s

    def append(self, path: str, data: bytes) -> None:
        self.write(path, self.files.get(path, b"") + data)

    def answer(self, kind: str, stdout: Callable[[Query], bytes]) -> None:
        """Answer queries of this kind; `stdout` is called with the query, which has the separators."""
        self.answers[kind] = lambda query: CommandResult(query, 0, stdout(query), "", self.now_s, 0.25)

    def now(self) -> float:
        return self.now_s

    def run(self, query: Query, timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
        if query.kind not in self.answers:
            words = f"{query.argv[0]}: command not found"
            return CommandResult(query, None, b"", "", self.now_s, 0.0, words)
        return self.answers[query.kind](query)

    def read(self, path: Path, offset: int, limit: int, owner: int | None = None) -> bytes:
        data = self._file(path)[offset : offset + limit]
        self.reads.append((str(path), offset, len(data)))
        return data

    def size(self, path: Path, owner: int | None = None) -> int:
        if str(path) not in self.files and self._children(path):
            return 4096
        return len(self._file(path))

    def modified_s(self, path: Path, owner: int | None = None) -> float:
        self._file(path)
        return self.modified.get(str(path), self.now_s)

    def owner_of(self, path: Path) -> int:
        return os.geteuid()

    def list_dir(self, path: Path) -> list[str]:
        self._check(path)
        if str(path) in self.files:
            raise _error(errno.ENOTDIR, path)
        names = self._children(path)
        if not names:
            raise _error(errno.ENOENT, path)
        return names

    def real_path(self, path: Path) -> Path:
        return path

    def _children(self, path: Path) -> list[str]:
        prefix = f"{path}/"
        return sorted({name[len(prefix) :].split("/")[0] for name in self.files if name.startswith(prefix)})

    def _file(self, path: Path) -> bytes:
        self._check(path)
        if str(path) not in self.files:
            raise _error(errno.ENOENT, path)
        return self.files[str(path)]

    def _check(self, path: Path) -> None:
        if str(path) in self.failing:
            raise _error(self.failing[str(path)], path)


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
