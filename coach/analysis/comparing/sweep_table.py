"""A group of runs as one table: the result of each value of a sweep, and its efficiency. Pure.

Runs of a group differ in one value on purpose, so they are not compared pairwise as by `compare`; a run that
ended out of memory is a result like any other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from coach.analysis.comparing.scaling_laws import Scaling, Size, scaling_of, scaling_words
from coach.analysis.comparing.speedup import Measured, efficiency_words, ratio_words, speedup_of
from coach.analysis.comparing.steady_state import Estimate
from coach.analysis.comparing.time_to_target import TimeToTarget, short_words, time_to_target
from coach.analysis.comparing.two_runs import measure
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Finding, Severity
from coach.model.launching.launch import Scalar
from coach.model.slurm.cluster import has_failed, is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run

WORLD_SIZE = "world_size"
_MEMORY_CAUSES = ("cuda_oom", "host_oom")
OUT_OF_MEMORY = "out of memory"
_LAST_STEPS = 10
"""The loss of one step depends on its batch: the mean over this many steps is reported, but over no more than
the last tenth, because a loss for each epoch has few values."""
_LESS_IS_BETTER = re.compile(
    r"loss|time|memory|steps_to|norm|error|perplexity|wer|cer|mse|mae|rmse", re.IGNORECASE
)
_NO_METRICS = frozenset({"event", "time_s", "step", "epoch", "seconds"})


@dataclass(frozen=True, slots=True)
class Member:
    """One run of the group as it was read."""

    run_id: str
    value: Scalar
    state: str | None
    measured: Measured
    finding: Finding | None
    """The finding that ended it, or its most severe one."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Its last metrics; see `final_metrics`."""
    target: TimeToTarget | None = None
    """Its progress to its `target_accuracy`; None if none was set."""
    loss_words: str | None = None
    """`NaN from step 12`; None if its newest loss is finite or not known."""


@dataclass(frozen=True, slots=True)
class Point:
    """One line of the table."""

    run_id: str
    value: Scalar
    state: str | None
    world_size: int | None
    throughput: Estimate | None
    """Samples per second of all ranks together."""
    ratio: float | None
    """Throughput over that of the first value with enough steps."""
    efficiency: float | None
    """In a sweep over ranks: throughput per rank over that of the fewest ranks. Otherwise: throughput over
    the best of the group."""
    step_time: Estimate | None
    data_time: Estimate | None
    memory_mib: float | None
    result: str
    """`measured`, `out of memory`, or the run's state if there is no measurement."""
    metrics: Mapping[str, float]
    """Its last metrics; see `final_metrics`."""
    global_batch: int | None = None
    """Samples of one step of all ranks."""
    target: TimeToTarget | None = None
    """Its progress to its `target_accuracy`; None if none was set."""
    loss_words: str | None = None
    """`NaN from step 12`; null if its newest loss is finite or not known."""
    found: str | None = None
    """Code of the finding that ended it, or of its most severe one; null without a warning."""
    ratio_noise: float | None = None
    """Half the width of the 95 % interval of `ratio`."""
    efficiency_noise: float | None = None
    """Half the width of the 95 % interval of `efficiency`."""
    because: str | None = None
    """Why a measured speed has no ratio or no efficiency: too few steps, another device."""

    @property
    def result_words(self) -> str:
        """The result, with the code of the finding if the result does not tell it."""
        is_told = self.found is None or self.result == OUT_OF_MEMORY or self.found in self.result
        return self.result if is_told else f"{self.result}, {self.found}"

    def metric_words(self, metric: str) -> str | None:
        """Words in place of a loss that is not a number; None for other metrics."""
        return self.loss_words if "loss" in metric and metric not in self.metrics else None

    @property
    def target_words(self) -> str | None:
        """`0.9: 12.3 s, 120 steps`, or the best accuracy of a run that did not reach it."""
        return None if self.target is None else short_words(self.target)

    @property
    def ratio_words(self) -> str | None:
        """`1.70 ± 0.05`; without a ratio the reason in short: `too few steps`. None if its speed was not
        measured."""
        if self.ratio is None:
            return None if self.because is None else self.because.partition(" (")[0]
        return ratio_words(Estimate(self.ratio, self.ratio_noise, 0))

    @property
    def efficiency_words(self) -> str | None:
        """`85 ± 3 %`"""
        if self.efficiency is None:
            return None
        return efficiency_words(Estimate(self.efficiency, self.efficiency_noise, 0))

    @property
    def is_result(self) -> bool:
        """True if the run gave the result that it was launched for."""
        return self.state == "COMPLETED" or self.result == OUT_OF_MEMORY


@dataclass(frozen=True, slots=True)
class Group:
    """The whole table."""

    group_id: str
    recipe: str
    parameter: str
    points: tuple[Point, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why points have no ratio or no efficiency, a line for each reason: `1, 2: too few steps (…)`."""
        reasons: dict[str, list[str]] = {}
        for point in self.points:
            if point.because is not None:
                reasons.setdefault(point.because, []).append(str(point.value))
        return tuple(f"{', '.join(values)}: {because}" for because, values in reasons.items())

    @property
    def scaling(self) -> Scaling | None:
        """The fitted scaling laws; None if the sweep is not over ranks, or too few sizes were measured."""
        if self.parameter != WORLD_SIZE:
            return None
        return scaling_of(
            [
                Size(point.world_size, point.throughput.value, point.global_batch)
                for point in self.points
                if point.world_size and point.throughput and point.ratio is not None
            ]
        )

    @property
    def scaling_words(self) -> tuple[str, ...]:
        """The scaling laws in sentences."""
        return scaling_words(self.scaling) if self.scaling is not None else ()


def group_of(group_id: str, known: Iterable[Run]) -> list[Run]:
    """The runs of a group, in the order of its values."""
    members = [run for run in known if run.sweep is not None and run.sweep.group_id == group_id]
    return sorted(members, key=lambda run: run.sweep.index if run.sweep is not None else 0)


def member_of(run: Run, snapshot: TargetSnapshot, history: History, findings: Sequence[Finding]) -> Member:
    """A run of the group, with its measurements and its findings."""
    expected = [finding for finding in findings if finding.rule in run.expects]
    loud = [finding for finding in findings if finding.severity >= Severity.WARNING]
    measured = measure(snapshot, history)
    return Member(
        run.run_id,
        run.sweep.value if run.sweep is not None else "",
        snapshot.state or run.state,
        measured,
        next(iter((*expected, *loud)), None),
        final_metrics(snapshot, history, measured),
        time_to_target(snapshot),
        loss_words(history),
    )


def best_first(points: Iterable[Point], metric: str) -> tuple[Point, ...]:
    """The points by one metric, the best first; then failed runs, and last runs without the metric. Raises
    UserError if no run has it."""
    points = tuple(points)
    if not any(metric in point.metrics for point in points):
        known = sorted({name for point in points for name in point.metrics})
        hint = f"they have: {', '.join(known)}" if known else "no run of the group has reported a metric yet"
        raise UserError(f"--best {metric}: no run of the group has this metric", hint)
    sign = 1 if is_less_better(metric) else -1

    def place(point: Point) -> tuple[bool, bool, float]:
        value = point.metrics.get(metric)
        return value is None, has_failed(point.state), sign * value if value is not None else 0.0

    return tuple(sorted(points, key=place))


def table(parameter: str, members: Sequence[Member]) -> tuple[Point, ...]:
    """The group's table, in the order of its values."""
    rates = [(rate, each.measured) for each in members if (rate := _rate(each.measured)) is not None]
    first = rates[0][1] if rates else None
    base = max(rates, key=lambda each: each[0])[1] if rates else None
    if parameter == WORLD_SIZE:
        ranked = [measured for _, measured in rates if measured.world_size]
        base = min(ranked, key=lambda measured: measured.world_size or 0, default=first)
    return tuple(_point(member, parameter, first, base) for member in members)


def _rate(measured: Measured) -> float | None:
    """Samples per second, if it has enough steps."""
    rate = measured.throughput
    return rate.value if rate is not None and rate.noise is not None else None


def _point(member: Member, parameter: str, first: Measured | None, base: Measured | None) -> Point:
    """One line of the table. The ratio is against `first`, the efficiency against `base`."""
    measured = member.measured
    varied = parameter.split(", ")
    over_first, over_base = (speedup_of(each or measured, measured, varied) for each in (first, base))
    ratio = over_first.ratio
    efficiency = over_base.efficiency if parameter == WORLD_SIZE else over_base.ratio
    is_unknown = measured.throughput is not None and (ratio is None or efficiency is None)
    return Point(
        member.run_id,
        member.value,
        member.state,
        measured.world_size,
        measured.throughput,
        ratio.value if ratio else None,
        efficiency.value if efficiency else None,
        measured.step_time,
        measured.data_time,
        measured.memory_peak.value if measured.memory_peak else None,
        _result(member),
        dict(member.metrics),
        measured.global_batch,
        member.target,
        member.loss_words,
        None if member.finding is None else member.finding.rule,
        ratio.noise if ratio else None,
        efficiency.noise if efficiency else None,
        (over_first.because or over_base.because) if is_unknown else None,
    )


def _result(member: Member) -> str:
    if is_out_of_memory(member.state, member.finding):
        return OUT_OF_MEMORY
    if member.state == "COMPLETED" and member.measured.throughput is not None:
        return "measured"
    if member.finding is not None and member.state not in (None, "PENDING", "RUNNING", "COMPLETED"):
        return f"{member.state}: {member.finding.rule} {member.finding.name}"
    return member.state or "not known"


def is_out_of_memory(state: str | None, finding: Finding | None) -> bool:
    """True if the run ended out of memory, the limit that a sweep over the batch looks for."""
    if state == "OUT_OF_MEMORY":
        return True
    has_ended = is_final(state) and state != "COMPLETED"
    return has_ended and finding is not None and finding.cause in _MEMORY_CAUSES


def final_metrics(snapshot: TargetSnapshot, history: History, measured: Measured) -> Mapping[str, float]:
    """Name → value: `loss` and `grad_norm` of the last steps, `eval_…` of the last evaluation that has it,
    `samples_per_s`, `step_time_s`, `memory_mib`; for a run that reached its `target_accuracy`,
    `time_to_target_s` (without start-up) and `steps_to_target`. Values that are missing or not finite are
    left out."""
    found: dict[str, float | None] = {}
    steps = list(history.steps(history.ranks[0])) if history.ranks else []
    for name in ("loss", "grad_norm", "accuracy"):
        values = [value for step in steps if (value := getattr(step, name)) is not None]
        found[name] = fmean(values[-max(1, min(_LAST_STEPS, len(values) // 10)) :]) if values else None
    for event in snapshot.events:
        if event.event == "eval":
            found |= {
                f"eval_{name}": _number(value)
                for name, value in event.fields.items()
                if name not in _NO_METRICS
            }
    estimates = (
        ("samples_per_s", measured.throughput),
        ("step_time_s", measured.step_time),
        ("memory_mib", measured.memory_peak),
    )
    found |= {name: estimate.value if estimate else None for name, estimate in estimates}
    found |= _to_target(snapshot)
    return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}


def loss_words(history: History) -> str | None:
    """`NaN from step 12` if the newest loss is not finite, with the first step of that stretch; None if it is
    finite or not known."""
    steps = history.steps(history.ranks[0]) if history.ranks else ()
    words, since = None, None
    for step in reversed(list(steps)):
        if step.loss is None:
            continue
        if math.isfinite(step.loss):
            break
        words, since = ("NaN" if math.isnan(step.loss) else "inf"), step.step
    return None if words is None else f"{words} from step {since}"


def _to_target(snapshot: TargetSnapshot) -> dict[str, float | None]:
    target = time_to_target(snapshot)
    return {} if target is None else {"time_to_target_s": target.training_s, "steps_to_target": target.step}


def is_less_better(metric: str) -> bool:
    """True for losses, times, memory and errors; for other metrics more counts as better."""
    return _LESS_IS_BETTER.search(metric) is not None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
