"""Follow files that other programs append to: read every byte once, in bounded bites.

Network file systems do not report that a file grew, so a follower polls. It remembers its position, detects
that a file was truncated or replaced, and reads at most one bite at a time, so that one huge file cannot
delay the others.
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
"""A file is identified by this many first bytes: enough for the time stamp of a first record."""

_SEAM_BYTES = 256
"""Number of already read bytes that are read again with the next ones: they must not have changed."""
_NUM_TRIES = 3
"""If a file is replaced on another machine, a network file system loses its handle (ESTALE) and finds the new
file at the next try."""
_MAX_WHOLE_FILE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Bite:
    """The result of one look at a file."""

    data: bytes
    is_caught_up: bool
    is_restart: bool = False
    """True if the file was truncated or replaced: `data` starts at its beginning."""


class FileFollower:
    """Reads the data that are appended to one file. Raises OSError for file errors."""

    def __init__(self, io: Io, path: Path, bite_bytes: int = BITE_BYTES, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self.size = 0
        self.head = b""
        self.lost: tuple[bytes, int] | None = None
        """(head, number of bytes read) of the file that was here before the last restart."""
        self._io = io
        self._bite_bytes = bite_bytes
        self._seam = b""
        self._zeros_at: int | None = None

    def read(self) -> Bite:
        """The next bite; empty if there is nothing new."""
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
            # If the reported size is below the offset, it was an outdated size from the file system's cache.
            return self._next(data[num_again:])
        self.lost = (self.head, self.offset)
        self.offset, self.head, self._seam = 0, b"", b""
        return self._next(self._io.read(self.path, 0, self._bite_bytes), is_restart=True)

    def _next(self, data: bytes, is_restart: bool = False) -> Bite:
        end = self.offset + len(data.rstrip(b"\0"))
        are_zeros_new = end < self.offset + len(data) and end != self._zeros_at
        if are_zeros_new:
            # Zeros at the end are mostly bytes that another machine has not written back yet, so they are
            # accepted only at a second look.
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
    is_restart: bool
    """True if the file was truncated or replaced: it begins with these records."""


class RecordFollower:
    """Reads the records that are appended to one JSON-lines file. An incomplete last line waits for the
    rest."""

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
            # A record has a few hundred bytes: this is not a record, and would fill the memory.
            self._torn, self._is_overlong, num_bad = b"", True, num_bad + 1
        return RecordBite(tuple(records), num_bad, bite.is_caught_up, bite.is_restart)


def read_whole(io: Io, path: Path) -> bytes:
    """The content of a small file. Raises OSError."""
    return io.read(path, 0, _MAX_WHOLE_FILE_BYTES)


def describe(error: OSError) -> str:
    """`FILE: reason`, in one line."""
    reason = error.strerror or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason
