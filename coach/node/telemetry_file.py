"""The sampler's file: appended records that are never too long, moved aside when the file has grown large."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping

from coach import runs

MAX_FILE_BYTES = 8 * 2**20
MAX_OLD_FILES = 4


def encode_short(record: Mapping[str, Any]) -> bytes:
    """One line below the limit of a telemetry record: the longest text is cut until it fits."""
    value: Dict[str, Any] = dict(record)
    while True:
        line = runs.encode_record(value)
        if len(line) < runs.MAX_TELEMETRY_RECORD_BYTES:
            return line
        longest = max((key for key in value if isinstance(value[key], str)), key=lambda key: len(value[key]))
        value[longest] = value[longest][: len(value[longest]) // 2]


class TelemetryFile:
    """telemetry/<node>.jsonl. A full file moves to telemetry/old/<node>-<n>.jsonl, of which the newest few are kept."""

    def __init__(self, paths: runs.RunPaths, node: str, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._path = paths.telemetry_of(node)
        self._old_dir = paths.telemetry_dir / "old"
        self._node = node
        self._max_bytes = max_bytes
        self._is_torn = False
        """True when the last write ended within a line."""

    def append(self, lines: Iterable[bytes]) -> bool:
        """Write lines in one go. True when they begin a new file. Raises OSError when they cannot be written."""
        data = b"".join(lines)
        is_new = self._rotate_if_full()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            data = b"\n" + data if self._is_torn else data
            written = os.write(descriptor, data)
            self._is_torn = written > 0 and data[written - 1 : written] != b"\n"
            if written < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        finally:
            os.close(descriptor)
        return is_new

    def _rotate_if_full(self) -> bool:
        try:
            if self._path.stat().st_size < self._max_bytes:
                return False
        except FileNotFoundError:
            return True
        self._old_dir.mkdir(exist_ok=True)
        numbers = self._old_numbers()
        self._path.replace(self._old(numbers[-1] + 1 if numbers else 1))
        for number in numbers[: max(0, len(numbers) + 1 - MAX_OLD_FILES)]:
            with contextlib.suppress(OSError):
                self._old(number).unlink()
        return True

    def _old(self, number: int) -> Path:
        return self._old_dir / f"{self._node}-{number}.jsonl"

    def _old_numbers(self) -> List[int]:
        pattern = re.compile(re.escape(self._node) + r"-(\d+)\.jsonl")
        found = (pattern.fullmatch(path.name) for path in self._old_dir.iterdir())
        return sorted(int(match[1]) for match in found if match)
