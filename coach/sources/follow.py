"""Follow files that others append to: every byte once, in bounded bites.

Network file systems tell nobody that a file grew, so a follower looks. It knows where it stopped, notices
that a file was cut or replaced under its name, and never reads more at once than a bite, so that one huge
file cannot hold up the rest.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coach import runs
from coach.sources.io import Io

BITE_BYTES = 1 << 20
HEAD_BYTES = 256
"""A file is recognised by its first bytes: enough for the time stamp of a first record."""

_SEAM_BYTES = 256
"""So much of what was read last is read again with what follows it: it must still be there."""
_NUM_TRIES = 3
"""A network file system loses its handle of a file that was replaced on another machine, and finds the new
one when asked again."""
_MAX_WHOLE_FILE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Bite:
    """What one look at a file brought."""

    data: bytes
    is_caught_up: bool
    is_restart: bool = False
    """The file was cut or replaced: `data` begins at its start."""


class FileFollower:
    """Reads what was appended to one file. File errors pass through as OSError."""

    def __init__(self, io: Io, path: Path, bite_bytes: int = BITE_BYTES, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.size = 0
        self.head = b""
        self.lost: tuple[bytes, int] | None = None
        """Head of the file that was here before the last restart, and how far it was read."""
        self._io = io
        self._bite_bytes = bite_bytes
        self._seam = b""
        self._zeros_at: int | None = None

    def read(self) -> Bite:
        """The next bite; empty when there is nothing new."""
        for _ in range(_NUM_TRIES - 1):
            try:
                return self._read()
            except OSError as problem:
                if problem.errno != errno.ESTALE:
                    raise
        return self._read()

    def _read(self) -> Bite:
        self.size = self._io.size(self.path)
        if self.size == self.offset:
            return Bite(b"", True)
        if self.offset == 0:
            return self._next(self._io.read(self.path, 0, self._bite_bytes))
        is_same = self.size < self.offset or self._io.read(self.path, 0, len(self.head)) == self.head
        num_again = len(self._seam)
        data = self._io.read(self.path, self.offset - num_again, self._bite_bytes)
        if is_same and data[:num_again] == self._seam:
            # Where the size said less than was read already, it was an old one that the file system had kept.
            return self._next(data[num_again:])
        self.lost = (self.head, self.offset)
        self.offset, self.head, self._seam = 0, b"", b""
        return self._next(self._io.read(self.path, 0, self._bite_bytes), is_restart=True)

    def _next(self, data: bytes, is_restart: bool = False) -> Bite:
        end = self.offset + len(data.rstrip(b"\0"))
        are_zeros_new = end < self.offset + len(data) and end != self._zeros_at
        if are_zeros_new:
            # Zeros at the end are mostly bytes that another machine has not written back yet: they get a
            # second look.
            self._zeros_at, data = end, data.rstrip(b"\0")
        if self.offset == 0:
            self.head = data[:HEAD_BYTES]
        self.offset += len(data)
        self._seam = (self._seam + data[-_SEAM_BYTES:])[-_SEAM_BYTES:]
        return Bite(data, not data or are_zeros_new or self.offset >= self.size, is_restart)


@dataclass(frozen=True, slots=True)
class RecordBite:
    """New records of one JSON-lines file."""

    records: tuple[dict[str, Any], ...]
    num_bad: int
    is_caught_up: bool


class RecordFollower:
    """Reads the records that were appended to one JSON-lines file. A torn last line waits for its end."""

    def __init__(self, io: Io, path: Path, bite_bytes: int = BITE_BYTES) -> None:
        self.file = FileFollower(io, path, bite_bytes)
        self._bite_bytes = bite_bytes
        self._torn = b""
        self._is_overlong = False

    def read(self) -> RecordBite:
        """The next bite of records. Raises OSError."""
        bite = self.file.read()
        if bite.is_restart:
            self._torn, self._is_overlong = b"", False
        data = self._torn + bite.data
        if self._is_overlong:
            end = data.find(b"\n") + 1
            data, self._is_overlong = (data[end:], False) if end else (b"", True)
        records, num_bad, used = runs.decode_records(data)
        self._torn = data[used:]
        if len(self._torn) > self._bite_bytes:
            # A record is a few hundred bytes: this is no record, and it must not be kept in memory.
            self._torn, self._is_overlong, num_bad = b"", True, num_bad + 1
        return RecordBite(tuple(records), num_bad, bite.is_caught_up)


def read_whole(io: Io, path: Path) -> bytes:
    """A small file at once. Raises OSError."""
    return io.read(path, 0, _MAX_WHOLE_FILE_BYTES)


def describe(error: OSError) -> str:
    """`FILE: what is wrong`, in one line."""
    reason = error.strerror or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason
