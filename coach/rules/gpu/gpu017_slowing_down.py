"""GPU017: a training that gets slower and slower. Something in it grows, and what that is shows in the same
four quarters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from coach.lookback.history import CurvePoint, History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.quoted_evidence import size_text
from coach.rules.from_numbers.telemetry_windows import quarters, training_host_samples
from coach.rules.from_numbers.training_windows import is_first_of_epochs


@dataclass(frozen=True, slots=True)
class _Quarters:
    """What a step took in each quarter of the training, in seconds: the median of its points."""

    steps: tuple[int, ...]
    """The last one of each."""
    whole: tuple[float, ...]
    data: tuple[float, ...]

    @property
    def growth(self) -> float:
        return self.whole[-1] / self.whole[0]

    @property
    def by_data(self) -> float:
        """The share of the growth that is waiting for data."""
        return (self.data[-1] - self.data[0]) / (self.whole[-1] - self.whole[0])


class SlowingDown(Rule):
    """Each step takes longer than the ones before it, from the beginning of the training to its end.

    What it sees
        The time of a step over the whole training, without its first tenth, in four quarters: the median of
        each above that of the quarter before, and the last `growth` times the first. Where the batch grows,
        the time of a sample is taken for that of a step. Beside it how much of the growth is waiting for
        data, and how the memory of the node grew meanwhile.
    Why it matters
        What grows goes on growing: a training that was to take a day takes three, and it ends at its time
        limit or where its memory does.
    When it stays silent
        On fewer than `min_points` points, or less than `min_s` of steps. Where the pace changed once, as with
        a neighbour, a hot GPU or another phase, and where it varies: a quarter of the last one's points must
        not reach back to the first's pace. In the first of several epochs it is info: samples may be sorted
        by their length.
    What to do
        Look for what is kept from step to step: a list of outputs or losses that each step goes through
        again, a graph that is never freed (`.detach()`, `.item()`), a log or an index that is read from its
        start, hooks that are registered once more in every step. Profile a late step beside an early one.
    Sources
        runmedic (the last quarter below 0.8 of the first quarter's rate, with rank correlation); trainspotter
        (1.4 times).
    """

    code = "GPU017"
    name = "slowing-down"
    cause = "slowing_down"
    severity = Severity.WARNING
    needs = (frozenset({Need.METRICS}),)
    for_s = 30.0
    keep_s = 30.0
    thresholds = (
        Threshold(
            "growth",
            1.4,
            "times the first quarter",
            "trainspotter's bound; noise of 2 % a step stays far below",
        ),
        Threshold(
            "quarter_growth",
            1.05,
            "times the quarter before",
            "a pace that changed once stands still in some quarter",
        ),
        Threshold("min_points", 64, "points of the curve", "sixteen in each quarter"),
        Threshold("min_s", 100, "seconds of steps", "caches and clocks settle within the first minute"),
        Threshold("data_share", 0.5, "of the growth", "then the loader is what gets slower"),
        Threshold("memory_growth", 1.2, "times the first quarter", "as MEM009: less may be fragmentation"),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        points = [point for point in history.curve if point.step_time_s]
        points = points[len(points) // 10 :]
        total_s = sum([(point.step_time_s or 0.0) * point.num_steps for point in points])
        if len(points) < max(8, self.values["min_points"]) or total_s < self.values["min_s"]:
            return
        costs = _costs(points)
        found = _quarters(points, costs)
        if found.growth < self.values["growth"] or any(
            after < self.values["quarter_growth"] * before for before, after in pairwise(found.whole)
        ):
            return
        last = sorted(costs[3 * len(costs) // 4 :])
        if last[len(last) // 4] <= found.whole[0]:
            return
        memory = _memory_growth(snapshot, history)
        yield Hit(
            summary=(
                f"Each step takes {found.growth:.1f} times as long as at the beginning, and it gets worse"
            ),
            evidence=tuple(self._evidence(found, memory)),
            confidence=round(min(0.9, 0.6 + 0.2 * (found.growth - 1)), 2),
            fixes=tuple(self._fixes(found, memory)),
            severity=Severity.INFO if is_first_of_epochs(snapshot, history) else None,
            since_s=points[0].time_s,
        )

    def _evidence(self, found: _Quarters, memory: list[float]) -> Iterable[Evidence]:
        whole = ", ".join(f"{value:.4g}" for value in found.whole)
        yield Evidence(
            (
                "step time in s by quarters of the training, to the steps "
                f"{', '.join(map(str, found.steps))}: {whole}"
            ),
            value=round(found.growth, 2),
            unit="times the first quarter",
        )
        yield Evidence(
            "share of the growth that is waiting for data",
            value=round(found.by_data, 2),
            unit="of the growth",
        )
        if self._has_grown(memory):
            yield Evidence(
                "resident memory by quarters of the training: " + ", ".join(map(size_text, memory))
            )

    def _fixes(self, found: _Quarters, memory: list[float]) -> Iterable[Fix]:
        kept = (
            "is kept per step and gone through again: lists of outputs or losses, with their graph "
            "(`.item()`, `.detach()`)"
        )
        repeated = (
            "each step does once more than the one before: hooks and callbacks registered in the loop, "
            "metrics over all steps so far"
        )
        if found.by_data >= self.values["data_share"]:
            yield Fix(
                "Look for what the loader keeps or reads again: an index or a file that is gone through "
                "from its start, files that stay open, a cache without a bound"
            )
        elif self._has_grown(memory):
            yield Fix(f"Look for what {kept}")
        elif memory:
            yield Fix(f"Look for what {repeated}")
        else:
            yield Fix(f"Look for what {kept}; or {repeated}")
        yield Fix("Profile a late step beside an early one with torch.profiler: what has grown stands out")

    def _has_grown(self, memory: list[float]) -> bool:
        return (
            bool(memory)
            and memory[-1] >= self.values["memory_growth"] * memory[0]
            and memory == sorted(memory)
        )


def _costs(points: Sequence[CurvePoint]) -> list[float]:
    """Seconds of a step; of as many samples as the first steps had, where it is known how many there were."""
    rates = [point.samples_per_s for point in points]
    if None in rates or 0 in rates:
        return [point.step_time_s or 0.0 for point in points]
    batch = (points[0].step_time_s or 0.0) * (points[0].samples_per_s or 0.0)
    return [batch / rate for rate in rates if rate]


def _quarters(points: Sequence[CurvePoint], costs: Sequence[float]) -> _Quarters:
    bounds = [len(points) * part // 4 for part in range(5)]
    parts = list(pairwise(bounds))
    return _Quarters(
        tuple(points[end - 1].step for _, end in parts),
        tuple(median(costs[begin:end]) for begin, end in parts),
        tuple(median([point.data_time_s or 0.0 for point in points[begin:end]]) for begin, end in parts),
    )


def _memory_growth(snapshot: TargetSnapshot, history: History) -> list[float]:
    """Resident memory by quarters, in MiB, on the node where it grew most; empty where it was not
    measured."""
    used = [
        quarters(
            [s.memory_used_mib for s in training_host_samples(snapshot, history, node) if s.memory_used_mib]
        )
        for node in history.nodes
    ]
    return max((parts for parts in used if parts), key=lambda parts: parts[-1] / parts[0], default=[])
