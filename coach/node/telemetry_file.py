"""The sampler's file: appended records that are never too long, moved aside when the file has grown large.

However long a run is, all of it is kept, and never more than a few files: the two oldest parts are merged into one of which every
second sample is dropped, so that what is long past is there more coarsely.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping

from coach import runs

MAX_FILE_BYTES = 8 * 2**20
MAX_OLD_FILES = 4

# A merged part that does not get small enough, as after a storm of events, is dropped.
_MAX_MERGED_SHARE = 1.5

_SERIES = re.compile(
    rb'\{"kind":"(?P<kind>\w+)","time_s":[0-9.]+,"node":"[^"]*",'
    rb'(?P<rest>(?:"(?:gpu|pid|name|path)":(?P<member>\d+|"[^"]*"))?.*)\n$'
)


def encode_short(record: Mapping[str, Any]) -> bytes:
    """One line below the limit of a telemetry record: the longest text is cut until it fits."""
    value: Dict[str, Any] = dict(record)
    while True:
        line = runs.encode_record(value)
        if len(line) < runs.MAX_TELEMETRY_RECORD_BYTES:
            return line
        longest = max((key for key in value if isinstance(value[key], str)), key=lambda key: len(value[key]))
        value[longest] = value[longest][: len(value[longest]) // 2]


def thinned(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Every second record of each GPU, process and so on; all events; each gap once."""
    is_kept: Dict[bytes, bool] = {}
    for line in lines:
        found = _SERIES.match(line)
        if not found:
            continue  # torn by a full disk
        if found["kind"] == b"gpu_event":
            yield line
            continue
        key = found["rest"] if found["kind"] == b"gap" else found["kind"] + (found["member"] or b"")
        is_kept[key] = key not in is_kept or (found["kind"] != b"gap" and not is_kept[key])
        if is_kept[key]:
            yield line


class TelemetryFile:
    """telemetry/<node>.jsonl. A full file moves to telemetry/old/<node>-<n>.jsonl, of which there are few."""

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
        numbers = self._old_numbers()
        while len(numbers) > MAX_OLD_FILES:
            self._merge(self._old(numbers[0]), self._old(numbers[1]))
            del numbers[0]
        return True

    def _merge(self, older: Path, newer: Path) -> None:
        """Both in the newer one's place, thinned. Where that fails, as on a full disk, the older one is dropped."""
        merged = newer.with_name(f".{newer.name}")
        try:
            with open(merged, "wb") as file:
                for path in (older, newer):
                    with open(path, "rb") as part:
                        file.writelines(thinned(part))
            if merged.stat().st_size <= _MAX_MERGED_SHARE * self._max_bytes:
                merged.replace(newer)
            else:
                merged.unlink()
        except OSError:
            with contextlib.suppress(OSError):
                merged.unlink()
        with contextlib.suppress(OSError):
            older.unlink()

    def _old(self, number: int) -> Path:
        return self._old_dir / f"{self._node}-{number}.jsonl"

    def _old_numbers(self) -> List[int]:
        pattern = re.compile(re.escape(self._node) + r"-(\d+)\.jsonl")
        found = (pattern.fullmatch(path.name) for path in self._old_dir.iterdir())
        return sorted(int(match[1]) for match in found if match)
