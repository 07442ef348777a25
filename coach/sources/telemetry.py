"""What the sampler measured beside the training: telemetry/<node>.jsonl, and its rotated parts in telemetry/old/."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coach import runs
from coach.model.reading import Reading, TelemetryChunk
from coach.model.telemetry import GpuSample, HostSample, ProcessSample, SensorGap, TelemetrySample
from coach.sources.follow import HEAD_BYTES, RecordFollower, describe
from coach.sources.io import Io
from coach.sources.values import finite, text, whole

INTERVAL_S = 1.0

_TIME = re.compile(rb'"time_s": ?(\d{1,12}(?:\.\d{1,9})?)')


def parse_records(records: Iterable[Mapping[str, Any]]) -> tuple[list[TelemetrySample], int]:
    """Samples, and how many records were wrong. A kind of a newer sampler is passed over."""
    samples: list[TelemetrySample] = []
    num_bad = 0
    for record in records:
        parse = _PARSERS.get(text(record.get("kind")) or "")
        if parse is None:
            num_bad += text(record.get("kind")) is None
            continue
        node, time_s = text(record.get("node")), finite(record.get("time_s"))
        sample = None if node is None or time_s is None else parse(record, node, time_s)
        if sample is None:
            num_bad += 1
        else:
            samples.append(sample)
    return samples, num_bad


def _parse_gpu(record: Mapping[str, Any], node: str, time_s: float) -> GpuSample | None:
    gpu = whole(record.get("gpu"))
    if gpu is None or gpu < 0:
        return None
    reasons = record.get("clocks_event_reasons")
    return GpuSample(
        node=node,
        time_s=time_s,
        gpu=gpu,
        uuid=text(record.get("uuid")),
        name=text(record.get("name")),
        utilization_pct=finite(record.get("utilization_pct")),
        memory_used_mib=finite(record.get("memory_used_mib")),
        memory_total_mib=finite(record.get("memory_total_mib")),
        power_w=finite(record.get("power_w")),
        power_limit_w=finite(record.get("power_limit_w")),
        temperature_c=finite(record.get("temperature_c")),
        sm_clock_mhz=finite(record.get("sm_clock_mhz")),
        max_sm_clock_mhz=finite(record.get("max_sm_clock_mhz")),
        clocks_event_reasons=tuple(str(reason) for reason in reasons) if isinstance(reasons, list) else None,
    )


def _parse_host(record: Mapping[str, Any], node: str, time_s: float) -> HostSample:
    return HostSample(
        node=node,
        time_s=time_s,
        cpu_pct=finite(record.get("cpu_pct")),
        num_cpus=whole(record.get("num_cpus")),
        memory_used_mib=finite(record.get("memory_used_mib")),
        memory_limit_mib=finite(record.get("memory_limit_mib")),
        memory_available_mib=finite(record.get("memory_available_mib")),
        num_processes=whole(record.get("num_processes")),
    )


def _parse_process(record: Mapping[str, Any], node: str, time_s: float) -> ProcessSample | None:
    pid = whole(record.get("pid"))
    if pid is None:
        return None
    return ProcessSample(
        node=node,
        time_s=time_s,
        pid=pid,
        name=text(record.get("name")) or "",
        rank=whole(record.get("rank")),
        cpu_pct=finite(record.get("cpu_pct")),
        rss_mib=finite(record.get("rss_mib")),
        gpu_memory_mib=finite(record.get("gpu_memory_mib")),
    )


def _parse_gap(record: Mapping[str, Any], node: str, time_s: float) -> SensorGap | None:
    what = text(record.get("what"))
    if what is None:
        return None
    return SensorGap(node, what, text(record.get("because")) or "", text(record.get("how")) or "")


_PARSERS: Mapping[str, Callable[[Mapping[str, Any], str, float], TelemetrySample | None]] = MappingProxyType(
    {"gpu": _parse_gpu, "host": _parse_host, "process": _parse_process, "gap": _parse_gap}
)


class TelemetrySource:
    """Follows the sampler files of one run, rotated parts first, each part once.

    A rotated part is known by its first bytes: it goes on from where it was read under its live name.
    """

    name = "telemetry"

    def __init__(self, io: Io, target: str, run_dir: Path, interval_s: float = INTERVAL_S) -> None:
        self.interval_s = interval_s
        self._io = io
        self._target = target
        self._folder = runs.RunPaths(run_dir).telemetry_dir
        self._live: dict[str, RecordFollower] = {}
        self._old: dict[str, RecordFollower | None] = {}
        """Rotated parts; None once read to the end, for nobody writes to them any more."""

    def poll(self) -> Iterable[Reading]:
        start_s = self._io.now()
        samples: list[TelemetrySample] = []
        num_bad, is_caught_up, error = 0, True, None
        try:
            for name, follower in self._followers():
                bite = follower.read()
                new_samples, num_wrong = parse_records(bite.records)
                samples += new_samples
                num_bad += bite.num_bad + num_wrong
                is_caught_up = is_caught_up and bite.is_caught_up
                if bite.is_caught_up and self._old.get(name) is follower:
                    self._old[name] = None
        except OSError as problem:
            error = describe(problem)
        now_s = self._io.now()
        duration_s = now_s - start_s
        if samples or num_bad or error is None:
            chunk = TelemetryChunk(self._target, tuple(samples))
            is_caught_up = is_caught_up or error is not None
            yield Reading(self.name, now_s, duration_s, chunk, None, self._target, num_bad, is_caught_up)
        if error is not None:
            yield Reading(self.name, now_s, duration_s, None, error, self._target)

    def _followers(self) -> list[tuple[str, RecordFollower]]:
        for name in self._names(self._folder / "old"):
            if name not in self._old:
                self._old[name] = self._adopt(self._folder / "old" / name)
        live = [name for name in self._names(self._folder) if name.endswith(".jsonl")]
        for name in live:
            if name not in self._live:
                self._live[name] = RecordFollower(self._io, self._folder / name)
        unread = [(name, follower) for name, follower in self._old.items() if follower is not None]
        unread.sort(key=lambda item: _first_time_s(item[1].file.head))
        return unread + [(name, self._live[name]) for name in live]

    def _names(self, folder: Path) -> list[str]:
        try:
            names = self._io.list_dir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []  # the sampler has not begun, or nothing was rotated
        return [name for name in names if ".jsonl" in name and not name.startswith(".")]

    def _adopt(self, path: Path) -> RecordFollower:
        """The follower of a new rotated part: the live one whose file this was, or one that starts at its beginning."""
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
