"""Summarize a trace of torch.profiler in numbers: idle time of the device and the host's work meanwhile, the
slowest operations, the share of communication that was hidden, and copies.

Events overlap, and an operator's event contains those of its callees. So busy time is the time covered by any
event, and an operator's own time excludes its callees. Pure.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from coach.model.errors import UserError
from coach.model.training.trace import (
    Communication,
    CopyKind,
    Share,
    Trace,
    TraceEvent,
    TraceReport,
    Work,
)

Interval = tuple[float, float]
BETWEEN = "Python between the operators"
_STEP = "ProfilerStep#"
_TOP = 10
_ON_DEVICE = frozenset({Work.KERNEL, Work.COPY, Work.COMMUNICATION})
_ON_HOST = frozenset({Work.OPERATOR, Work.HOST_COMMUNICATION})
_US = 1e6
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _Window:
    """The profiled period in microseconds, its events, and the time that each kind of work covers."""

    begin: float
    end: float
    is_gpu: bool
    events: Sequence[TraceEvent]
    computed: list[Interval]
    communicated: list[Interval]
    gaps: list[Interval]

    @property
    def length(self) -> float:
        return max(self.end - self.begin, 1e-9)


def report(trace: Trace) -> TraceReport:
    """The whole report. Raises UserError if nothing was profiled."""
    steps = [event for event in trace.events if event.name.startswith(_STEP)]
    window = _window(trace, steps)
    kernels = [event.end_us - event.begin_us for event in window.events if event.work is Work.KERNEL]
    made = TraceReport(
        window.is_gpu,
        trace.rank,
        trace.world_size,
        trace.device,
        len(steps) or None,
        window.length / _US,
        _length(window.computed) / window.length,
        _length(window.gaps) / window.length,
        len(kernels) if window.is_gpu else None,
        median(kernels) / _US if kernels else None,
        max(map(_lasts, window.gaps), default=0.0) / _US,
        _top_kernels(window.events) if window.is_gpu else top_operators(window.events),
        _in_gaps(window.gaps, window.events),
        _waits(window),
        _communication(window),
        _copies(window.events),
    )
    return replace(made, remarks=remarks(made))


def _window(trace: Trace, steps: Sequence[TraceEvent]) -> _Window:
    is_gpu = any(event.work in _ON_DEVICE for event in trace.events)
    kinds = _ON_DEVICE if is_gpu else _ON_HOST
    work = [event for event in trace.events if event.work in kinds]
    if not any(event.work is not Work.HOST_COMMUNICATION for event in work):
        raise UserError(
            "the trace has neither kernels nor operators", "profile with ProfilerActivity.CPU and CUDA"
        )
    begin = min(event.begin_us for event in steps or work)
    end = max(event.end_us for event in [*steps, *work])
    inside = [event for event in trace.events if event.end_us > begin and event.begin_us < end]
    computed = _union(inside, Work.KERNEL if is_gpu else Work.OPERATOR, begin, end)
    communicated = _union(inside, _sending(is_gpu), begin, end)
    copied = _union(inside, Work.COPY, begin, end)
    gaps = _gaps(merged([*computed, *communicated, *copied]), begin, end)
    return _Window(begin, end, is_gpu, inside, computed, communicated, gaps)


def _sending(is_gpu: bool) -> Work:
    return Work.COMMUNICATION if is_gpu else Work.HOST_COMMUNICATION


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals that overlap or touch."""
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def _union(events: Iterable[TraceEvent], kind: Work, begin: float, end: float) -> list[Interval]:
    return merged(
        (max(event.begin_us, begin), min(event.end_us, end)) for event in events if event.work is kind
    )


def _lasts(interval: Interval) -> float:
    return interval[1] - interval[0]


def _length(intervals: Iterable[Interval]) -> float:
    return sum(map(_lasts, intervals))


def _gaps(busy: Sequence[Interval], begin: float, end: float) -> list[Interval]:
    """The periods between the first and the last moment in which nothing ran."""
    edges = [(begin, begin), *busy, (end, end)]
    return [(before[1], after[0]) for before, after in pairwise(edges) if after[0] > before[1]]


def _overlap(first: Sequence[Interval], second: Sequence[Interval]) -> float:
    """Time covered by both; each list is merged already."""
    total, place = 0.0, 0
    for begin, end in first:
        while place < len(second) and second[place][1] <= begin:
            place += 1
        at = place
        while at < len(second) and second[at][0] < end:
            total += min(end, second[at][1]) - max(begin, second[at][0])
            at += 1
    return total


def _shares(times: dict[str, list[float]], whole: float) -> tuple[Share, ...]:
    rows = [
        Share(name, sum(each) / _US, len(each), sum(each) / whole if whole else 0.0)
        for name, each in times.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.time_s, row.name)))


def _top_kernels(events: Iterable[TraceEvent]) -> tuple[Share, ...]:
    times: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.work in _ON_DEVICE:
            times[short_name(event.name)].append(event.end_us - event.begin_us)
    return _shares(times, sum(map(sum, times.values())))[:_TOP]


def top_operators(events: Iterable[TraceEvent]) -> tuple[Share, ...]:
    """Operators by their own time, without the operators that they called on the same thread."""
    times: dict[str, list[float]] = defaultdict(list)
    threads: dict[tuple[str, str], list[TraceEvent]] = defaultdict(list)
    for event in events:
        if event.work is Work.OPERATOR:
            threads[event.thread].append(event)
    for each in threads.values():
        for event, own in _own_times(each):
            times[event.name].append(own)
    return _shares(times, sum(map(sum, times.values())))[:_TOP]


def _own_times(events: Iterable[TraceEvent]) -> list[tuple[TraceEvent, float]]:
    """The events of one thread, each with its time minus that of its direct children."""
    found: list[list[float]] = []
    ordered = sorted(events, key=lambda event: (event.begin_us, -event.end_us))
    open_: list[int] = []
    for index, event in enumerate(ordered):
        lasted = event.end_us - event.begin_us
        while open_ and ordered[open_[-1]].end_us <= event.begin_us:
            open_.pop()
        if open_:
            found[open_[-1]][0] -= min(lasted, ordered[open_[-1]].end_us - event.begin_us)
        found.append([lasted])
        open_.append(index)
    return [(event, max(0.0, own[0])) for event, own in zip(ordered, found, strict=True)]


def _in_gaps(gaps: Sequence[Interval], events: Sequence[TraceEvent]) -> tuple[Share, ...]:
    """The host's work during each gap: the innermost named event of the steps' thread at the middle of the
    gap."""
    host = [
        event
        for event in events
        if event.work in (Work.OPERATOR, Work.ANNOTATION, Work.RUNTIME) and not event.name.startswith(_STEP)
    ]
    steps = [event.thread for event in events if event.name.startswith(_STEP)]
    main = steps[0] if steps else _most_frequent([event.thread for event in host])
    own = sorted(
        (event for event in host if event.thread == main), key=lambda each: (each.begin_us, -each.end_us)
    )
    begins = [event.begin_us for event in own]
    around = _around(own)
    times: dict[str, list[float]] = defaultdict(list)
    for begin, end in gaps:
        middle = (begin + end) / 2
        at = bisect_right(begins, middle) - 1
        while at >= 0 and own[at].end_us < middle:
            at = around[at]
        times[own[at].name if at >= 0 else BETWEEN].append(end - begin)
    return _shares(times, _length(gaps))[:5]


def _around(ordered: Sequence[TraceEvent]) -> list[int]:
    """For each event of a thread, the index of the event around it; -1: none."""
    found: list[int] = []
    open_: list[int] = []
    for index, event in enumerate(ordered):
        while open_ and ordered[open_[-1]].end_us <= event.begin_us:
            open_.pop()
        found.append(open_[-1] if open_ else -1)
        open_.append(index)
    return found


def _most_frequent(threads: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    return max(set(threads), key=threads.count, default=None)


def _waits(window: _Window) -> Share | None:
    """The time in which any thread of the host waits for the device."""
    found = [
        (max(event.begin_us, window.begin), min(event.end_us, window.end))
        for event in window.events
        if event.work is Work.RUNTIME and "synchronize" in event.name.casefold()
    ]
    waited = _length(merged(found))
    return Share("synchronize", waited / _US, len(found), waited / window.length) if found else None


def _communication(window: _Window) -> Communication | None:
    num_calls = sum(event.work is _sending(window.is_gpu) for event in window.events)
    if not num_calls:
        return None
    whole, hidden = _length(window.communicated), _overlap(window.communicated, window.computed)
    share = hidden / whole if whole else 0.0
    return Communication(whole / _US, num_calls, share, (whole - hidden) / window.length)


def _copies(events: Iterable[TraceEvent]) -> tuple[CopyKind, ...]:
    kinds: dict[str, list[TraceEvent]] = defaultdict(list)
    for event in events:
        if event.work is Work.COPY:
            kinds[_copy_name(event.name)].append(event)
    made = []
    for name, each in kinds.items():
        time_us = sum(event.end_us - event.begin_us for event in each)
        known = [event.num_bytes for event in each if event.num_bytes is not None]
        num_bytes = sum(known) if len(known) == len(each) else None
        rate = num_bytes / time_us * _US if num_bytes and time_us else None
        made.append(CopyKind(name, time_us / _US, len(each), num_bytes, rate))
    return tuple(sorted(made, key=lambda kind: -kind.time_s))


def _copy_name(name: str) -> str:
    if "Memset" in name:
        return "fill"
    words = {"HtoD": "host to device", "DtoH": "device to host", "DtoD": "device to device"}
    direction = next((words[key] for key in words if key in name), name)
    return f"{direction}, pageable" if "Pageable" in name else direction


def short_name(name: str) -> str:
    """A kernel's name without its types: `vectorized_elementwise_kernel (CUDAFunctor_add)`."""
    plain = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    base = re.split(r"[<(]", plain, maxsplit=1)[0].rpartition("::")[2] or plain
    if base.startswith("Kernel") and "<" in plain:  # CUTLASS: its first type names the operation
        return re.split(r"[<,>]", plain.partition("<")[2], maxsplit=1)[0].strip() or base
    words = _WORD.findall(plain[len(base) :]) if "<" in plain else []
    functor = next(
        (word for word in words if "Functor" in word or word.endswith(("_kernel_cuda", "_op"))), base
    )
    return f"{base} ({functor})" if functor != base else base


# Remarks, in words, each with advice. A remark is a hint to look, not a finding.

_IDLE, _EXPOSED, _WAITS, _PAGEABLE = 0.3, 0.1, 0.2, 0.05
"""Smallest shares of the window that are worth a remark: smaller ones are within the variation between
runs."""
_SHORT_KERNEL_S = 20e-6
"""Seconds. A launch costs the host 5 to 10 microseconds: kernels not much longer than that leave gaps."""
_LOADER = "enumerate(DataLoader)"


def remarks(report: TraceReport) -> tuple[str, ...]:
    """The remarks, the largest share first; a single one that says so if nothing stands out."""
    found = [*_of_idle(report), *_of_communication(report), *_of_host(report)]
    told = tuple(text for _, text in sorted(found, reverse=True))
    if told or not report.top:
        return told
    first = report.top[0]
    return (f"nothing stands out: {first.name} is the largest part of the work, {first.share:.0%} of it",)


def _of_idle(report: TraceReport) -> list[tuple[float, str]]:
    loader = report.idle_share * sum(gap.share for gap in report.gaps if gap.name.startswith(_LOADER))
    what = "device" if report.is_gpu else "step"
    if loader >= _EXPOSED:
        return [
            (
                loader,
                f"the {what} waits for data {loader:.0%} of the time: more num_workers (recipe "
                "sweep_workers), or data on the device (gpu_data)",
            )
        ]
    if not report.is_gpu or report.idle_share < _IDLE:
        return []
    kernel = report.median_kernel_s
    if kernel is not None and kernel < _SHORT_KERNEL_S:
        text = (
            f"the device is idle {report.idle_share:.0%} of the time, and half of the kernels take less "
            f"than {kernel * 1e6:.3g} us: the host cannot launch them fast enough. A larger batch "
            "(sweep_batch), or fewer kernels (compile)"
        )
    else:
        text = f"the device is idle {report.idle_share:.0%} of the time: look at what the host does meanwhile"
    return [(report.idle_share, text)]


def _of_communication(report: TraceReport) -> list[tuple[float, str]]:
    told = report.communication
    if told is None or told.exposed_share < _EXPOSED:
        return []
    return [
        (
            told.exposed_share,
            f"collectives that do not overlap with computing take {told.exposed_share:.0%} of the time: a "
            "larger batch, gradient_accumulation, or another bucket_cap_mb of ddp",
        )
    ]


def _of_host(report: TraceReport) -> list[tuple[float, str]]:
    found = []
    waits = report.waits
    if waits is not None and report.idle_share >= _IDLE and waits.share >= _WAITS:
        found.append(
            (
                waits.share,
                f"the host waits for the device {waits.share:.0%} of the time, in {waits.num_calls} calls, "
                "and then the device for the host: look for .item(), .cpu() and print in the step",
            )
        )
    pageable = sum(kind.time_s for kind in report.copies if kind.name.endswith("pageable")) / report.window_s
    if pageable >= _PAGEABLE:
        found.append(
            (
                pageable,
                f"copies from ordinary memory take {pageable:.0%} of the time: pin_memory=True in the "
                "loader, and non_blocking=True in .to()",
            )
        )
    return found
