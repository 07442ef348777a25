"""Records that a node could not write to a run's file system because it is full or a quota is used up.

A full disk takes no new record, also not the program's own error. So this file is made while there is room,
and overwritten in place: that needs no further block on most file systems.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from coach import runs

IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
RECORD_BYTES = 512


def reserve(paths: runs.RunPaths, node: str) -> None:
    """Make the file with the room that a record needs. Raises OSError."""
    descriptor = os.open(paths.full_disk_of(node), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, b"{}".ljust(RECORD_BYTES - 1) + b"\n", 0)
    finally:
        os.close(descriptor)


class FullDisk:
    """What one process of a node saw of its file system. No method raises."""

    def __init__(self, paths: runs.RunPaths, node: str) -> None:
        self._path = paths.full_disk_of(node)
        self._first_s: Optional[float] = None

    def failed(self, error: OSError, exit_code: Optional[int] = None) -> None:
        """A write failed. Any error other than a full disk is passed over. `exit_code`: that of the
        command, if it has ended."""
        if error.errno not in IS_FULL:
            return
        now_s = time.time()
        self._first_s = self._first_s if self._first_s is not None else self._earlier_first_s() or now_s
        record = {"errno": error.errno, "first_time_s": self._first_s, "last_time_s": now_s}
        self._write(record if exit_code is None else {**record, "exit_code": exit_code})

    def succeeded(self) -> None:
        """A write succeeded, so the disk is no longer full."""
        if self._first_s is not None:
            self._first_s = None
            self._write({})

    @contextlib.contextmanager
    def watch(self, exit_code: Optional[int] = None) -> Iterator[None]:
        """Note an error of the writes in the block, and raise it again."""
        try:
            yield
        except OSError as error:
            self.failed(error, exit_code)
            raise
        self.succeeded()

    def _earlier_first_s(self) -> Optional[float]:
        with contextlib.suppress(runs.RunFileError):
            first_s = runs.read_json(self._path).get("first_time_s")
            return first_s if isinstance(first_s, float) else None
        return None

    def _write(self, record: Dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            if record:
                record.update(_room(self._path.parent))
            data = json.dumps(record).encode().ljust(RECORD_BYTES - 1) + b"\n"
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, data, 0)
            finally:
                os.close(descriptor)


def _room(folder: Path) -> Dict[str, int]:
    """Free bytes, and inodes where the file system counts them."""
    with contextlib.suppress(OSError):
        found = os.statvfs(folder)
        room = {"free_bytes": found.f_bavail * found.f_frsize}
        return {**room, "free_inodes": found.f_favail} if found.f_files else room
    return {}
