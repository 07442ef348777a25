"""Read the dumps that torch's flight recorder writes when a collective times out: one file per rank, a pickle
or JSON.

A pickle can run any code and claim any amount of memory. So it is read by pickle's reader in Python, which is
slower but allocates only for data that exist, and which here may load no name at all: numbers, text and their
containers need none.
"""

from __future__ import annotations

import io as files
import json
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from coach.model.reading import FlightRecords, Reading
from coach.model.training.flight import Call, FlightRecord
from coach.model.training.stacks import RankStack
from coach.sources.io import Io
from coach.sources.metrics.stack_dumps import parse_py_spy

INTERVAL_S = 10.0
MAX_DUMP_BYTES = 16 << 20
MAX_DUMPS = 1024
MAX_BYTES = 256 << 20
"""Files that are read at most, the newest, and their bytes: a MiB takes 0.4 s. Where there are more, a rank
without a dump is not known to have written none."""
_AT_ONCE = 64
"""Files that one poll reads at most: a dump of a thousand calls with their stacks takes 0.2 s."""
MAX_CALLS = 256
"""Largest number of calls kept per process group, the newest ones: about earlier ones the ranks agree."""
_MAX_TENSORS, _MAX_DIMENSIONS = 8, 16
_MOST = 1 << 63
"""Upper bound for numbers from torch; a larger one is forged, and may have more digits than can be
printed."""

_MAX_FRAMES = 100
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<|\.(?:cpp|cc|h|so)\b|^\?\?")
"""Files of frames that are none of the program's own: installed packages, Python itself, C++."""
_UNFINISHED = ("scheduled", "started")
_RANK = re.compile(r"(\d{1,6})$")


class _Unpickler(pickle._Unpickler):  # type: ignore[name-defined, misc, unused-ignore]  # no stubs: the reader in Python
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a dump names nothing, this one {module}.{name}")


class FlightRecorderSource:
    """Reads the dumps of one target, each when it appears and whenever it is rewritten."""

    name = "flight"

    def __init__(self, io: Io, target: str, paths: Callable[[], Sequence[Path]]) -> None:
        self.interval_s = INTERVAL_S
        self._io = io
        self._target = target
        self._paths = paths
        self._known: dict[Path, tuple[float, int]] = {}
        self._records: dict[Path, tuple[FlightRecord, ...]] = {}
        self._calls: dict[Call, Call] = {}
        self._stacks: dict[Path, RankStack | None] = {}

    def poll(self) -> Iterable[Reading]:
        start_s, num_bad = self._io.now(), 0
        newest, num_left_out = self._newest()
        paths = sorted(path for path, _, _ in newest)
        changed = [each for each in newest if self._known.get(each[0]) != each[1:]]
        for path, written_s, size in changed[:_AT_ONCE]:
            self._known[path] = written_s, size
            try:
                data = self._io.read(path, 0, MAX_DUMP_BYTES)
            except OSError:
                continue
            records, stack = parse_dump(data, path), parse_py_spy(data, path, written_s)
            self._records[path] = tuple(self._kept(record, written_s) for record in records or ())
            self._stacks[path] = stack
            num_bad += records is None and stack is None
        is_caught_up = len(changed) <= _AT_ONCE
        # Each look asks the file system about every dump.
        self.interval_s = INTERVAL_S * (1 + len(paths) // _AT_ONCE if is_caught_up else 1)
        found = tuple(self._of_one_stop(paths, is_whole=is_caught_up and not num_left_out))
        now_s = self._io.now()
        stacks = tuple(stack for path in paths if (stack := self._stacks.get(path)) is not None)
        payload = FlightRecords(self._target, found, num_left_out, stacks)
        yield Reading(self.name, now_s, now_s - start_s, payload, None, self._target, num_bad, is_caught_up)

    def _newest(self) -> tuple[list[tuple[Path, float, int]], int]:
        """The dumps to read, and the number of those that are left out."""
        dated = sorted(self._dated(), key=lambda each: each[1], reverse=True)
        num_bytes = accumulate(min(size, MAX_DUMP_BYTES) for _, _, size in dated[:MAX_DUMPS])
        newest = [each for each, so_far in zip(dated, num_bytes, strict=False) if so_far <= MAX_BYTES]
        return newest, len(dated) - len(newest)

    def _dated(self) -> Iterator[tuple[Path, float, int]]:
        """The dumps, the time of the last change of each, and its size in bytes."""
        try:
            paths = self._paths()
        except OSError:
            return  # the directory is unknown, which the log source reports
        for path in paths:
            try:
                yield path, self._io.modified_s(path), self._io.size(path)
            except OSError:
                continue

    def _kept(self, record: FlightRecord, written_s: float) -> FlightRecord:
        """The record with its time. All ranks make the same calls: each is kept once."""
        calls = tuple(self._calls.setdefault(call, call) for call in record.calls)
        return replace(record, calls=calls, written_s=written_s)

    def _of_one_stop(self, paths: Sequence[Path], *, is_whole: bool) -> Iterator[FlightRecord]:
        """The records of the newest stop: each rank once. Files with one name but for the rank are of one
        stop; older ones count only if they add ranks, as where each rank has a folder of its own."""
        stops: dict[str, list[Path]] = {}
        for path in paths:
            if self._records.get(path):
                stops.setdefault(_RANK.sub("", str(path)), []).append(path)
        ranks: set[int] = set()
        for stop in sorted(stops.values(), key=lambda each: -max(self._known[path][0] for path in each)):
            records = [record for path in stop for record in self._records[path]]
            if ranks.isdisjoint(record.rank for record in records):
                ranks.update(record.rank for record in records)
                yield from records if is_whole else (replace(each, members=()) for each in records)


def parse_dump(data: bytes, path: Path) -> tuple[FlightRecord, ...] | None:
    """The calls of one rank, one record per process group; None if the data are no dump, or incomplete. The
    file's name ends with the rank."""
    found = _RANK.search(path.name)
    dump = _load(data)
    entries = dump.get("entries") if isinstance(dump, Mapping) else None
    if found is None or not isinstance(dump, Mapping) or not isinstance(entries, list):
        return None
    calls: dict[str, dict[int, Call]] = {}
    unfinished: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry, Mapping) and not entry.get("is_p2p"):
            number = entry.get("collective_seq_id", entry.get("seq_id"))
            operation = entry.get("profiling_name")
            if _is_count(number) and isinstance(operation, str):
                of_group = calls.setdefault(_group_of(entry), {})
                sizes, place = _sizes(entry.get("input_sizes")), _place(entry.get("frames"))
                of_group[number] = Call(number, operation[:80], sizes, place)
                if entry.get("state") in _UNFINISHED:
                    group = _group_of(entry)
                    unfinished[group] = min(number, unfinished.get(group, number))
    return tuple(
        FlightRecord(
            int(found[1]),
            group,
            _members(dump.get("pg_config"), group),
            tuple(of_group[number] for number in sorted(of_group)[-MAX_CALLS:]),
            str(path),
            unfinished.get(group),
        )
        for group, of_group in calls.items()
    )


def _load(data: bytes) -> Any:
    try:
        if data[:1] == b"{":
            return json.loads(data)
        return _Unpickler(files.BytesIO(data)).load()
    except Exception:  # a forged or truncated pickle can fail in any way
        return None


def _group_of(entry: Mapping[Any, Any]) -> str:
    """The name of the process group. Only plain values become text: as text, nested lists of a few bytes can
    fill any memory."""
    group = entry.get("process_group")
    name = group[0] if isinstance(group, list | tuple) and group else entry.get("pg_id")
    return name[:80] if isinstance(name, str) else str(name) if _is_count(name) else ""


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _sizes(said: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(said, list | tuple):
        return ()
    return tuple(
        tuple(size for size in sizes[:_MAX_DIMENSIONS] if _is_count(size))
        for sizes in said[:_MAX_TENSORS]
        if isinstance(sizes, list | tuple)
    )


def _place(frames: Any) -> str:
    """The innermost line outside of installed packages. torch puts the innermost frame first."""
    for frame in frames[:_MAX_FRAMES] if isinstance(frames, list) else ():
        file, name = (
            (frame.get("filename"), frame.get("name")) if isinstance(frame, Mapping) else (None, None)
        )
        if isinstance(file, str) and isinstance(name, str) and not _LIBRARY.search(file):
            line = f":{frame['line']}" if _is_count(frame.get("line")) else ""
            return f"{file[-200:].rpartition('/')[2][:60]}{line} {name[:60]}()"
    return ""


def _members(config: Any, group: str) -> tuple[int, ...]:
    """The ranks of a group. gloo's configuration has one entry, without a name."""
    if not isinstance(config, Mapping):
        return ()
    said = config.get(group) or (next(iter(config.values())) if len(config) == 1 else None)
    try:
        ranks = json.loads(said["ranks"]) if isinstance(said, Mapping) else []
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(rank for rank in ranks if _is_count(rank)) if isinstance(ranks, list) else ()
