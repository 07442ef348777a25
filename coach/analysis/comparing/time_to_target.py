"""Find the time until a training reached its `target_accuracy`. Pure.

The faster of two trainings is the one that reaches its target first, not the one with more samples per
second. Accuracy is known only at evaluations: the target was reached at some time since the previous
evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coach.analysis.comparing.steady_state import Estimate
from coach.model.slurm.cluster import is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import MetricEvent

_LEAST_NOISE = 0.1
"""Least uncertainty of a value, as a share of it: a single run does not show how much runs differ."""


@dataclass(frozen=True, slots=True)
class TimeToTarget:
    """A run's progress to its target. Times are None if not measured."""

    target_accuracy: float
    is_reached: bool
    is_going: bool
    """True while the target may still be reached."""
    step: int | None
    """The step at which the target was reached."""
    accuracy: float | None
    """The accuracy at that step."""
    best_accuracy: float | None
    """The best accuracy of all evaluations; None without an evaluation."""
    training_s: float | None
    """Seconds from the first step to the target. None if the run resumed from a checkpoint: the time of the
    earlier process is not in it."""
    total_s: float | None
    """Seconds from the start of the process to the target."""
    earlier_s: float | None
    """Seconds from the previous evaluation to the target; None without a previous evaluation."""
    earlier_steps: int | None
    """Steps from the previous evaluation to the target."""


def time_to_target(snapshot: TargetSnapshot) -> TimeToTarget | None:
    """The run's progress to its target; None if the run has no target accuracy."""
    evaluations = [event for event in snapshot.events if event.event == "eval"]
    reached = [event for event in snapshot.events if event.event == "target"]
    if reached:
        first = min(reached, key=lambda event: (event.step or 0, event.rank))
        return _reached(snapshot, first, evaluations)
    asked = snapshot.run.parameters.get("target_accuracy") if snapshot.run is not None else None
    if not isinstance(asked, int | float) or isinstance(asked, bool) or not asked > 0:
        return None
    is_going = not is_final(snapshot.state or "RUNNING")
    return TimeToTarget(float(asked), False, is_going, None, None, _best(evaluations), None, None, None, None)


def _reached(
    snapshot: TargetSnapshot, event: MetricEvent, evaluations: Sequence[MetricEvent]
) -> TimeToTarget | None:
    """The progress that a `target` event records; None if the event has no target accuracy."""
    target = _number(event, "target_accuracy")
    if target is None:
        return None
    is_resumed = any(each.event == "resume" and each.rank == event.rank for each in snapshot.events)
    training_s = None if is_resumed else _number(event, "time_to_target_s")
    before = _evaluation_before(event, evaluations)
    return TimeToTarget(
        target,
        True,
        False,
        event.step,
        _number(event, "accuracy"),
        _best([*evaluations, event]),
        training_s,
        _sum(training_s, _number(event, "start_up_s")),
        _difference(event.time_s, before.time_s) if before is not None else None,
        _steps_since(event, before),
    )


def _best(evaluations: Iterable[MetricEvent]) -> float | None:
    accuracies = (_number(event, "accuracy") for event in evaluations)
    return max((value for value in accuracies if value is not None), default=None)


def target_words(told: TimeToTarget) -> str:
    """`accuracy 0.95 reached after 12.3 s of training (15.1 s with start-up), at step 120`."""
    asked = f"accuracy {told.target_accuracy:g}"
    if not told.is_reached:
        return f"{asked} {not_reached_words(told)}"
    after = "" if told.training_s is None else f" after {told.training_s:.4g} s of training"
    whole = "" if told.total_s is None else f" ({told.total_s:.4g} s with start-up)"
    at = "" if told.step is None else f", at step {told.step:,}"
    unknown = "" if after else "; the time before it resumed from a checkpoint was not measured"
    return f"{asked} reached{after}{whole}{at}{unknown}"


def short_words(told: TimeToTarget) -> str:
    """`0.9: 12.3 s, 120 steps`, without the start-up, or `0.9: not reached (best 0.71)`."""
    if not told.is_reached:
        return f"{told.target_accuracy:g}: {not_reached_words(told)}"
    time = "time not measured" if told.training_s is None else f"{told.training_s:.4g} s"
    return f"{told.target_accuracy:g}: {time}" + ("" if told.step is None else f", {told.step:,} steps")


def not_reached_words(told: TimeToTarget) -> str:
    """`not reached (best 0.71)`."""
    yet = " yet" if told.is_going else ""
    best = "never evaluated" if told.best_accuracy is None else f"best {told.best_accuracy:.4g}"
    return f"not reached{yet} ({best})"


def training_time(told: TimeToTarget | None) -> Estimate | None:
    """The time without start-up. Its uncertainty is the time since the previous evaluation."""
    return None if told is None else _estimate(told.training_s, told.earlier_s)


def total_time(told: TimeToTarget | None) -> Estimate | None:
    """The time with start-up. Its uncertainty is the time since the previous evaluation."""
    return None if told is None else _estimate(told.total_s, told.earlier_s)


def steps(told: TimeToTarget | None) -> Estimate | None:
    """Optimizer steps to the target. The uncertainty is the number of steps since the previous evaluation."""
    return None if told is None else _estimate(told.step, told.earlier_steps)


def _estimate(value: float | None, since: float | None) -> Estimate | None:
    if value is None:
        return None
    return Estimate(float(value), max(_LEAST_NOISE * value, value if since is None else since), 1)


def _evaluation_before(reached: MetricEvent, evaluations: Iterable[MetricEvent]) -> MetricEvent | None:
    """The last evaluation of the same rank at an earlier step."""
    earlier = [
        event
        for event in evaluations
        if event.rank == reached.rank and (event.step or 0) < (reached.step or 0)
    ]
    return max(earlier, key=lambda event: event.step or 0, default=None)


def _steps_since(reached: MetricEvent, before: MetricEvent | None) -> int | None:
    if before is None or before.step is None or reached.step is None:
        return None
    return reached.step - before.step


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _difference(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else max(0.0, later - earlier)


def _number(event: MetricEvent, name: str) -> float | None:
    value = event.fields.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) else None
