"""NUM011: the learning rate was almost 0 long before the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.loss_course import Point, courses, last_place

_FIRST = "first step with next to none"


@dataclass(frozen=True, slots=True)
class _Rated:
    """A loss with the learning rate beside it."""

    position: float
    """The step or the epoch. Newer values of a log are kept more densely, so an index is not a share of the
    run."""
    loss: float
    rate: float
    time_s: float | None
    evidence: Evidence


class RateDecayedEarly(Rule):
    """The learning rate was almost 0 long before the training ended.

    What it sees
        In a training that has ended: a learning rate of at most a hundredth of its peak for at least the last
        fifth of the steps, and a loss that fell before but no longer falls there. While the training runs:
        the same with a rate of exactly 0. The rates come from the metrics, or from a log that prints one
        beside each loss.
    Why it matters
        These steps learn almost nothing: the schedule was made for fewer steps than the run has.
    When it stays silent
        On a rate that never changes, on a decay that ends with the training (cosine, linear), while the loss
        still falls, if some steps are unknown, on lines without a rate, and on rates that a log prints with
        too few digits (`0.1`, then `0.0`).
    What to do
        Give the scheduler the real number of optimizer steps (epochs times batches, divided by gradient
        accumulation and ranks), or end the run where the rate reaches 0.
    Sources
        Google deep learning tuning playbook: learning rate decay; torch.optim.lr_scheduler (T_max,
        total_steps).
    """

    code = "NUM011"
    name = "learning-rate-decayed-early"
    cause = "lr_decayed_early"
    severity = Severity.WARNING
    needs = (frozenset({Need.METRICS}), frozenset({Need.LOG}))
    thresholds = (
        Threshold("low", 0.01, "of the peak", "no schedule trains long with a hundredth of its rate"),
        Threshold(
            "share", 0.2, "of the steps", "cosine and linear decays pass a hundredth in the last tenth"
        ),
        Threshold("fall", 0.01, "of the loss", "less progress than noise"),
        Threshold("min_steps", 50, "records", "fewer say nothing about a schedule", at_least=2),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for course in _courses(snapshot, history, self.values["low"]):
            hit = self._used_up(course, snapshot.has_ended)
            if hit is not None:
                yield hit
                return

    def _used_up(self, course: Sequence[_Rated], has_ended: bool) -> Hit | None:
        if len(course) < self.values["min_steps"]:
            return None
        peak = max(course, key=lambda rated: rated.rate)
        low = self.values["low"] * peak.rate if has_ended else 0.0
        start = _start_of_end(course, low)
        share = _share_from(course, start)
        is_long = len(course) - start >= 20 and share >= self.values["share"]
        if peak.rate <= 0 or start < 10 or not is_long or not self._has_stopped(course, start):
            return None
        return Hit(
            summary=(
                f"The learning rate was {'below a hundredth of its peak' if has_ended else '0'} for the last "
                f"{round(100 * share)} % of the steps"
            ),
            evidence=(
                replace(peak.evidence, value=peak.rate)
                if peak.evidence.file
                else Evidence("peak of the learning rate", value=peak.rate),
                course[start].evidence,
            ),
            confidence=0.8,
            fixes=(Fix("Give the scheduler the real number of optimizer steps", changes_learning=True),),
            since_s=course[start].time_s,
        )

    def _has_stopped(self, course: Sequence[_Rated], start: int) -> bool:
        """True if the loss fell before index `start` and does not fall after it."""
        losses = [rated.loss for rated in course]
        half = start + (len(course) - start) // 2
        early, late = fmean(losses[start:half]), fmean(losses[half:])
        return losses[0] > early > 0 and early - late < self.values["fall"] * early


def _start_of_end(course: Sequence[_Rated], low: float) -> int:
    """Index from which all rates are at most `low`."""
    start = len(course)
    while start > 0 and course[start - 1].rate <= low:
        start -= 1
    return start


def _share_from(course: Sequence[_Rated], start: int) -> float:
    """The share of the steps from index `start` to the end."""
    first, last = course[0].position, course[-1].position
    return (last - course[start].position) / (last - first) if start < len(course) and last > first else 0.0


def _courses(snapshot: TargetSnapshot, history: History, low: float) -> Iterable[Sequence[_Rated]]:
    """Courses in which each value has a loss and a rate. A log's rates need enough digits to distinguish the
    share `low` of their peak from 0."""
    if not history.ranks:
        for points in courses(snapshot, history):
            rated = [
                _Rated(position, point.loss, point.rate, point.time_s, point.evidence)
                for point in points
                if (position := _position(point)) is not None and point.rate is not None
            ]
            rates = [each.rate for each in rated]
            if rates and len(rates) == len(points) and last_place(rates) <= 1.01 * low * max(rates):
                yield rated
        return
    rank = history.ranks[0]
    steps = [
        _Rated(step.step, step.loss, step.lr, step.time_s, Evidence(_FIRST, value=step.step, unit="step"))
        for step in history.steps(rank)
        if step.lr is not None and step.loss is not None
    ]
    if len(steps) == history.num_steps(rank):
        yield steps


def _position(point: Point) -> float | None:
    return point.counter if point.epoch is None else point.epoch
