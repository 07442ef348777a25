"""GPU017: a training gets slower and slower because something in it grows; the four quarters of the run often
show the cause."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from coach.lookback.history import CurvePoint, History, throughput
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Counter
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import size_text
from coach.rules.from_numbers.telemetry_windows import quarters, training_host_samples
from coach.rules.from_numbers.training_windows import is_first_of_epochs


@dataclass(frozen=True, slots=True)
class _Quarters:
    """Step time and wait for data in each quarter of the training, in seconds: the medians of its points."""

    steps: tuple[int, ...]
    """The last step of each quarter."""
    whole: tuple[float, ...]
    """Without step times: seconds per token or sample."""
    data: tuple[float, ...] | None
    """None if the wait for data was not measured."""

    @property
    def growth(self) -> float:
        return self.whole[-1] / self.whole[0]

    @property
    def by_data(self) -> float | None:
        """Share of the growth that is due to waiting for data, 0 to 1."""
        if self.data is None:
            return None
        return min(1.0, max(0.0, (self.data[-1] - self.data[0]) / (self.whole[-1] - self.whole[0])))


@dataclass(frozen=True, slots=True)
class _Crowded:
    """A node on which more and more tasks waited for a CPU while the job got less of them. Percent by
    quarters."""

    node: str
    waiting: tuple[float, ...]
    own: tuple[float, ...]

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (
            Evidence(
                f"share of the time in which some task waited for a CPU of {self.node}, by quarters: "
                f"{_percents(self.waiting)}"
            ),
            Evidence(f"use of the job's CPUs on {self.node}, by quarters: {_percents(self.own)}"),
        )


def _percents(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.0f}" for value in values) + " %"


class SlowingDown(Rule):
    """Steps take longer and longer, from the beginning of the training to its end.

    What it sees
        The step time over the whole training except its first tenth, in four quarters: each median lies above
        that of the quarter before, and the last is at least `growth` times the first. If the batch grows, the
        time per sample is used; where a program prints only a rate, the time per token or per sample. As far
        as they were measured, the finding also shows how much of the growth
        is waiting for data, how the node's memory grew meanwhile, and the signs that other programs took its
        CPUs: more and more tasks of the node wait for a CPU, while the job gets less of them.
    Why it matters
        The growth goes on: a training planned for a day takes three, and ends at its time limit or when
        memory runs out.
    When it stays silent
        On fewer than `min_points` points, or less than `min_s` of steps. If the pace changed only once
        (another job on the node, a hot GPU, another phase). If the pace varies: more than a quarter of the
        points in the last quarter are as fast as the first quarter. In the first of several epochs it is
        info, because samples may be sorted by length.
    What to do
        Look for data that is kept from step to step: a list of outputs or losses that each step iterates
        over, a graph that is never freed (use `.detach()` or `.item()`), a log or an index that is read from
        its start, hooks that each step registers again. Profile an early and a late step and compare them.
        If other programs took the CPUs, find them, or ask for the node alone.
    Sources
        runmedic (the last quarter below 0.8 of the first quarter's rate, with rank correlation); trainspotter
        (1.4 times).
    """

    code = "GPU017"
    name = "slowing-down"
    cause = "slowing_down"
    severity = Severity.WARNING
    needs = (Need.METRICS,)
    for_s = 30.0
    keep_s = 30.0
    growth = Threshold(
        1.4, "times the first quarter", "trainspotter's bound; noise of 2 % a step stays far below"
    )
    quarter_growth = Threshold(
        1.05, "times the quarter before", "a pace that changed only once is steady in some quarter"
    )
    min_points = Threshold(64, "points of the curve", "sixteen in each quarter", at_least=4)
    min_s = Threshold(100, "seconds of steps", "caches and clocks settle within the first minute")
    data_share = Threshold(0.5, "of the growth", "if half of it is waiting for data, the loader gets slower")
    memory_growth = Threshold(1.2, "times the first quarter", "as MEM009: less may be fragmentation")
    pressure_pct = Threshold(20, "percent of the time", "as DAT001: some task waits for a CPU")
    pressure_growth = Threshold(
        2, "times the first quarter", "if tasks waited as much at the start, the job itself lets them wait"
    )
    own_share = Threshold(
        0.9, "of the first quarter", "if the job uses as much CPU as before, none was taken from it"
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        points, costs, rate = _costs(history.curve)
        if len(points) < max(8, self.min_points) or _seconds(points) < self.min_s:
            return
        found = _quarters(points, costs)
        if found.growth < self.growth or any(
            after < self.quarter_growth * before for before, after in pairwise(found.whole)
        ):
            return
        last = sorted(costs[3 * len(costs) // 4 :])
        if last[len(last) // 4] <= found.whole[0]:
            return
        memory = _memory_growth(snapshot, history)
        crowded = self._crowded_node(snapshot, history)
        yield Hit(
            summary=(
                f"Each {rate.removesuffix('s/s') or 'step'} takes {found.growth:.1f} times as long as at the "
                "beginning, and it gets worse"
            ),
            evidence=(*self._evidence(found, rate, memory), *(crowded.evidence if crowded else ())),
            confidence=round(min(0.9, 0.6 + 0.2 * (found.growth - 1)), 2),
            fixes=tuple(self._fixes(found, memory, crowded)),
            severity=Severity.INFO if is_first_of_epochs(snapshot, history) else None,
            since_s=points[0].time_s,
        )

    def _evidence(self, found: _Quarters, rate: str, memory: list[float]) -> Iterable[Evidence]:
        whole = ", ".join(f"{1 / value if rate else value:.4g}" for value in found.whole)
        yield Evidence(
            (
                f"{rate or 'step time in s'} by quarters of the training, to the steps "
                f"{', '.join(map(str, found.steps))}: {whole}"
            ),
            value=round(found.growth, 2),
            unit="times the first quarter",
        )
        if found.by_data is not None:
            yield Evidence(
                "share of the growth that is waiting for data",
                value=round(found.by_data, 2),
                unit="of the growth",
            )
        if self._has_grown(memory):
            yield Evidence(
                "resident memory by quarters of the training: " + ", ".join(map(size_text, memory))
            )

    def _crowded_node(self, snapshot: TargetSnapshot, history: History) -> _Crowded | None:
        """The node on which other programs took CPUs from the job, meanwhile."""
        for node in history.nodes:
            samples = training_host_samples(snapshot, history, node)
            waiting = quarters([s.cpu_pressure_pct for s in samples if s.cpu_pressure_pct is not None])
            own = quarters([s.cpu_pct for s in samples if s.cpu_pct is not None])
            if (
                waiting
                and own
                and waiting[-1] >= self.pressure_pct
                and waiting[-1] >= self.pressure_growth * waiting[0]
                and own[-1] <= self.own_share * own[0]
            ):
                return _Crowded(node, tuple(waiting), tuple(own))
        return None

    def _fixes(self, found: _Quarters, memory: list[float], crowded: _Crowded | None) -> Iterable[Fix]:
        kept = (
            "is kept per step and read again: lists of outputs or losses, with their graph (`.item()`, "
            "`.detach()`)"
        )
        repeated = (
            "each step does once more than the one before: hooks and callbacks registered in the loop, "
            "metrics over all steps so far"
        )
        if crowded:
            yield Fix(
                f"Find the other programs that took CPUs of {crowded.node} (`top` there, its jobs), or ask "
                "for the node alone (`--exclusive`)"
            )
        loader = Fix(
            "Look for what the loader keeps or reads again: an index or a file that is read from its "
            "start, files that stay open, a cache without a bound"
        )
        if found.by_data is not None and found.by_data >= self.data_share:
            yield loader
        elif self._has_grown(memory):
            yield Fix(f"Look for what {kept}")
        elif memory:
            yield Fix(f"Look for what {repeated}")
        else:
            yield Fix(f"Look for what {kept}; or {repeated}")
        if found.by_data is None:
            yield loader
        yield Fix(
            "Profile a late step beside an early one with torch.profiler and compare which part has grown"
        )

    def _has_grown(self, memory: list[float]) -> bool:
        return bool(memory) and memory[-1] >= self.memory_growth * memory[0] and memory == sorted(memory)


def _seconds(points: Sequence[CurvePoint]) -> float:
    """Time of the steps of these points; infinite if it is not known. A program that prints each fifth step
    spent as much in those between."""
    if not points[0].step_time_s:
        start_s, end_s = points[0].time_s, points[-1].time_s
        return math.inf if start_s is None or end_s is None else end_s - start_s
    steps = [point.step for point in points if point.counter is Counter.STEP]
    stride = median([after - before for before, after in pairwise(steps)] or [0])
    return sum([(point.step_time_s or 0.0) * max(point.num_steps, stride) for point in points])


def _costs(curve: Sequence[CurvePoint]) -> tuple[list[CurvePoint], list[float], str]:
    """The points behind the first tenth, the seconds of a step at each, and an empty text. The seconds are
    scaled to the batch of the first steps if the batch sizes are known. Without step times the seconds per
    token or per sample, and the rate's unit."""
    times = [point.step_time_s for point in curve]
    rate, rates = throughput(curve)
    if any(times):
        rate = ""
    else:
        times = [1 / each if each else None for each in rates]
    known = [(point, cost) for point, cost in zip(curve, times, strict=True) if cost]
    known = known[len(known) // 10 :]
    points, costs = [point for point, _ in known], [cost for _, cost in known]
    return points, costs if rate else _scaled(points, costs), rate


def _scaled(points: Sequence[CurvePoint], costs: list[float]) -> list[float]:
    """The seconds of each step, scaled to the batch of the first one if all batch sizes are known."""
    rates = [point.samples_per_s for point in points if point.samples_per_s]
    if not rates or len(rates) < len(points):
        return costs
    return [costs[0] * rates[0] / each for each in rates]


def _quarters(points: Sequence[CurvePoint], costs: Sequence[float]) -> _Quarters:
    bounds = [len(points) * part // 4 for part in range(5)]
    parts = list(pairwise(bounds))
    return _Quarters(
        tuple(points[end - 1].step for _, end in parts),
        tuple(median(costs[begin:end]) for begin, end in parts),
        _data_by_quarters(points, costs, parts),
    )


def _data_by_quarters(
    points: Sequence[CurvePoint], costs: Sequence[float], parts: Sequence[tuple[int, int]]
) -> tuple[float, ...] | None:
    """Median wait for data of each quarter, scaled to the batch as the costs are; None if some point has no
    such wait."""
    waits = [
        point.data_time_s * cost / point.step_time_s
        for point, cost in zip(points, costs, strict=True)
        if point.data_time_s is not None and point.step_time_s
    ]
    if len(waits) < len(points):
        return None
    return tuple(median(waits[begin:end]) for begin, end in parts)


def _memory_growth(snapshot: TargetSnapshot, history: History) -> list[float]:
    """Mean resident memory of each quarter, in MiB, on the node where it grew most; empty if not measured."""
    used = [
        quarters(
            [s.memory_used_mib for s in training_host_samples(snapshot, history, node) if s.memory_used_mib]
        )
        for node in history.nodes
    ]
    return max((parts for parts in used if parts), key=lambda parts: parts[-1] / parts[0], default=[])
