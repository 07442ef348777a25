"""Read the sampler's measurements beside the training: telemetry/<node>.jsonl, and its rotated parts in
telemetry/old/."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coach import runs
from coach.model.reading import Reading, TelemetryChunk
from coach.model.training.telemetry import (
    GpuEvent,
    GpuHealth,
    GpuLink,
    GpuSample,
    HostSample,
    MountSample,
    PortSample,
    ProcessSample,
    SensorGap,
    TelemetrySample,
)
from coach.sources.follow import HEAD_BYTES, RecordFollower, describe
from coach.sources.io import Io
from coach.sources.values import finite, flag, text, whole

INTERVAL_S = 1.0

_TIME = re.compile(rb'"time_s": ?(\d{1,12}(?:\.\d{1,9})?)')


def parse_records(records: Iterable[Mapping[str, Any]]) -> tuple[list[TelemetrySample], int]:
    """(samples, number of malformed records). Kinds from a newer sampler are skipped."""
    samples: list[TelemetrySample] = []
    num_bad = 0
    for record in records:
        kind = _KINDS.get(text(record.get("kind")) or "")
        if kind is None:
            num_bad += text(record.get("kind")) is None
            continue
        sample = kind.parse(record)
        if sample is None:
            num_bad += 1
        else:
            samples.append(sample)
    return samples, num_bad


def _texts(value: Any) -> tuple[str, ...] | None:
    return tuple(map(str, value)) if isinstance(value, list) else None


def _numbers(value: Any) -> tuple[int, ...] | None:
    known = [whole(item) for item in value] if isinstance(value, list) else [None]
    return None if None in known else tuple(item for item in known if item is not None)


_READERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "float": finite,
        "int": whole,
        "str": text,
        "bool": flag,
        "tuple[str, ...]": _texts,
        "tuple[int, ...]": _numbers,
    }
)


class _Kind:
    """Turns one kind of record into a sample: each field by its name and type."""

    def __init__(self, sample: type[TelemetrySample]) -> None:
        self._sample = sample
        self._readers = {
            field.name: _READERS[str(field.type).removesuffix(" | None")] for field in fields(sample)
        }
        self._required = [
            field.name
            for field in fields(sample)
            if "None" not in str(field.type) and field.default is MISSING
        ]

    def parse(self, record: Mapping[str, Any]) -> TelemetrySample | None:
        values: dict[str, Any] = {"uuid": None} if "uuid" in self._readers else {}
        for name, value in record.items():
            reader = self._readers.get(name)
            if reader is not None and (known := reader(value)) is not None:
                values[name] = known
        if any(name not in values for name in self._required) or values.get("gpu", 0) < 0:
            return None
        return self._sample(**values)


_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "gpu": _Kind(GpuSample),
        "gpu_link": _Kind(GpuLink),
        "gpu_health": _Kind(GpuHealth),
        "gpu_event": _Kind(GpuEvent),
        "host": _Kind(HostSample),
        "process": _Kind(ProcessSample),
        "port": _Kind(PortSample),
        "mount": _Kind(MountSample),
        "gap": _Kind(SensorGap),
    }
)


class TelemetrySource:
    """Follows the sampler files of one run: rotated parts first, each part once.

    A rotated part is identified by its first bytes: reading continues at the position reached under its live
    name.
    """

    name = "telemetry"

    def __init__(self, io: Io, target: str, run_dir: Path, interval_s: float = INTERVAL_S) -> None:
        self.interval_s = interval_s
        self._io = io
        self._target = target
        self._folder = runs.RunPaths(run_dir).telemetry_dir
        self._live: dict[str, RecordFollower] = {}
        self._old: dict[str, RecordFollower | None] = {}
        """Rotated parts; None once read to the end, because nobody writes to them any more."""

    def poll(self) -> Iterable[Reading]:
        start_s = self._io.now()
        samples: list[TelemetrySample] = []
        num_bad, error = 0, None
        behind: set[str] = set()
        """Nodes that have more to read: their later parts wait, so that samples come in the order of time."""
        try:
            for name, node, follower in self._followers():
                if node in behind:
                    continue
                try:
                    bite = follower.read()
                except FileNotFoundError:
                    if name not in self._old:
                        raise
                    self._old[name] = None  # it was merged into the next part meanwhile
                    continue
                new_samples, num_wrong = parse_records(bite.records)
                samples += new_samples
                num_bad += bite.num_bad + num_wrong
                if not bite.is_caught_up:
                    behind.add(node)
                elif self._old.get(name) is follower:
                    self._old[name] = None
        except OSError as problem:
            error = describe(problem)
        now_s = self._io.now()
        duration_s = now_s - start_s
        if samples or num_bad or error is None:
            chunk = TelemetryChunk(self._target, tuple(samples))
            is_caught_up = not behind or error is not None
            yield Reading(self.name, now_s, duration_s, chunk, None, self._target, num_bad, is_caught_up)
        if error is not None:
            yield Reading(self.name, now_s, duration_s, None, error, self._target)

    def _followers(self) -> list[tuple[str, str, RecordFollower]]:
        """The name of each file to read, its node, and its follower; the older of a node come first."""
        for name in self._names(self._folder / "old"):
            if name not in self._old:
                self._old[name] = self._adopt(self._folder / "old" / name)
        live = [name for name in self._names(self._folder) if name.endswith(".jsonl")]
        for name in live:
            if name not in self._live:
                self._live[name] = RecordFollower(self._io, self._folder / name)
        unread = [(name, follower) for name, follower in self._old.items() if follower is not None]
        unread.sort(key=lambda item: _first_time_s(item[1].file.head))
        rotated = [(name, name.rpartition("-")[0], follower) for name, follower in unread]
        newest = [(name, name.removesuffix(".jsonl"), self._live[name]) for name in live]
        return rotated + newest

    def _names(self, folder: Path) -> list[str]:
        try:
            names = self._io.list_dir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []  # the sampler has not started, or no file was rotated
        return [name for name in names if ".jsonl" in name and not name.startswith(".")]

    def _adopt(self, path: Path) -> RecordFollower:
        """The follower of a new rotated part: that of the live file which it was, or a new one."""
        head = self._io.read(path, 0, HEAD_BYTES)
        follower = RecordFollower(self._io, path)
        for name, live in list(self._live.items()):
            if live.file.head and head.startswith(live.file.head):
                del self._live[name]
                live.file.path = path
                return live
            if live.file.lost is not None and head.startswith(live.file.lost[0]):
                follower.file.offset = live.file.lost[1]
        follower.file.head = head
        return follower


def _first_time_s(head: bytes) -> float:
    found = _TIME.search(head)
    return float(found[1]) if found else 0.0
