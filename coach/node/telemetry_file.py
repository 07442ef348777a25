"""The sampler's file: appended records of limited length. A full file is moved aside.

A run of any length is kept whole in a limited number of files. If there are too many, two old parts are
merged, and every second sample is dropped. Parts with the same resolution are merged first: the older a part
of the run is, the coarser is its resolution.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Tuple

from coach import runs
from coach.trusted import open_trusted, read_tail

MAX_FILE_BYTES = 8 * 2**20
MAX_OLD_FILES = 4

# A merged part that stays too large, for example after a storm of events, is dropped.
_MAX_MERGED_SHARE = 1.5

_SERIES = re.compile(
    rb'\{"kind":"(?P<kind>\w+)","time_s":[0-9.]+,"node":"[^"]*",'
    rb'(?P<rest>(?:"(?:gpu|pid|name|path)":(?P<member>\d+|"[^"]*"))?.*)\n$'
)


def encode_short(record: Mapping[str, Any]) -> bytes:
    """One line below the limit of a telemetry record: the longest text is cut, or other values are dropped,
    until it fits."""
    value: Dict[str, Any] = dict(record)
    while True:
        line = runs.encode_record(value)
        if len(line) < runs.MAX_TELEMETRY_RECORD_BYTES:
            return line
        largest = max(
            (key for key in value if key not in ("kind", "time_s")),
            key=lambda key: len(runs.encode_record({key: value[key]})),
        )
        if isinstance(value[largest], str) and value[largest]:
            value[largest] = value[largest][: len(value[largest]) // 2]
        else:
            del value[largest]


def thinned(lines: Iterable[bytes], every: int) -> Iterator[bytes]:
    """Every n-th record per GPU, process and so on; all events; each gap once."""
    num_seen: Dict[bytes, int] = {}
    for line in lines:
        found = _SERIES.match(line)
        if not found:
            continue  # a full disk cut this line
        if found["kind"] == b"gpu_event":
            yield line
            continue
        is_gap = found["kind"] == b"gap"
        key = found["rest"] if is_gap else found["kind"] + (found["member"] or b"")
        number = num_seen[key] = num_seen.get(key, -1) + 1
        if number == 0 if is_gap else number % every == 0:
            yield line


def _ends_within_line(path: Path) -> bool:
    try:
        return read_tail(path, 1, owner=None) not in (b"", b"\n")
    except OSError:
        return False


class TelemetryFile:
    """telemetry/<node>.jsonl. A full file moves to telemetry/old/<node>-<n>.jsonl, with a limit on their
    number."""

    def __init__(self, paths: runs.RunPaths, node: str, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._path = paths.telemetry_of(node)
        self._old_dir = paths.telemetry_dir / "old"
        self._node = node
        self._max_bytes = max_bytes
        self._times_halved: Dict[int, int] = {}
        """Number of an old part → how often its samples were halved. A restarted sampler counts all parts as
        never halved, and merges them into coarser ones than necessary."""
        self._is_torn = _ends_within_line(self._path)
        """True if the last write ended within a line, also that of a sampler before a restart."""
        self.is_capped = False
        """True once old parts had to be merged, which drops samples."""

    def append(self, lines: Iterable[bytes]) -> bool:
        """Write lines by one call. Returns True if they begin a new file. Raises OSError if not all could be
        written."""
        data = b"".join(lines)
        is_new = self._rotate_if_full()
        self._is_torn = self._is_torn and not is_new
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
        self._make_room()
        return True

    def _make_room(self) -> None:
        numbers = self._old_numbers()
        if len(numbers) <= MAX_OLD_FILES:
            return
        self.is_capped = True

        def how_unlike(pair: Tuple[int, int]) -> Tuple[bool, int]:
            older, newer = (self._times_halved.get(number, 0) for number in pair)
            return older != newer, older if older == newer else 0

        # Of equal pairs the oldest. Never the newest part: a reader may not have seen yet that it was moved.
        older, newer = min(zip(numbers, numbers[1:-1]), key=how_unlike)  # noqa: B905, RUF007 (Python 3.9)
        halved = {number: self._times_halved.pop(number, 0) for number in (older, newer)}
        goal = max(halved.values())
        merged = self._old(newer).with_name(f".{self._old(newer).name}")
        try:
            sizes = {number: self._old(number).stat().st_size for number in halved}
            while sum(sizes[n] / 2 ** (goal - times) for n, times in halved.items()) > 1.2 * self._max_bytes:
                goal += 1
            self._times_halved[newer] = goal
            with open(merged, "wb") as file:
                for number, times in halved.items():
                    with open_trusted(self._old(number), owner=None) as part:
                        file.writelines(thinned(part, 2 ** (goal - times)))
            if merged.stat().st_size <= _MAX_MERGED_SHARE * self._max_bytes:
                merged.replace(self._old(newer))
        except OSError:
            pass  # a full disk, or a part that vanished: the older part is lost
        for path in (merged, self._old(older)):
            with contextlib.suppress(OSError):
                path.unlink()

    def _old(self, number: int) -> Path:
        return self._old_dir / f"{self._node}-{number}.jsonl"

    def _old_numbers(self) -> List[int]:
        pattern = re.compile(re.escape(self._node) + r"-(\d+)\.jsonl")
        found = (pattern.fullmatch(path.name) for path in self._old_dir.iterdir())
        return sorted(int(match[1]) for match in found if match)
