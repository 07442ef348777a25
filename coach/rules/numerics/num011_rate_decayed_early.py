"""NUM011: the learning rate was almost 0 long before the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.loss_course import Point, courses, last_place


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
    needs = (Need.METRICS, Need.LOG)
    low = Threshold(0.01, "of the peak", "no schedule trains long with a hundredth of its rate")
    share = Threshold(0.2, "of the steps", "cosine and linear decays pass a hundredth in the last tenth")
    fall = Threshold(0.01, "of the loss", "less progress than noise")
    min_steps = Threshold(50, "records", "fewer say nothing about a schedule", at_least=2)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for points in courses(snapshot, history):
            hit = self._used_up(points, snapshot.has_ended)
            if hit is not None:
                yield hit
                return

    def _used_up(self, points: Sequence[Point], has_ended: bool) -> Hit | None:
        rates, places = _rates_of(points, self.low), [point.position or 0.0 for point in points]
        if not len(points) == len(rates) >= self.min_steps:
            return None
        peak = max(rates)
        low = self.low * peak if has_ended else 0.0
        start = next((place for place in range(len(rates), 0, -1) if rates[place - 1] > low), 0)
        share = _share_from(places, start)
        is_long = len(points) - start >= 20 and share >= self.share
        if start < 10 or not is_long or not self._has_stopped(points, start):
            return None
        highest, first = points[rates.index(peak)], points[start]
        return Hit(
            summary=(
                f"The learning rate was {'below a hundredth of its peak' if has_ended else '0'} for the last "
                f"{round(100 * share)} % of the steps"
            ),
            evidence=(
                replace(highest.evidence, value=peak)
                if highest.evidence.file
                else Evidence("peak of the learning rate", value=peak),
                first.evidence
                if first.evidence.file
                else Evidence("first step with next to none", value=places[start], unit=first.counter.word),
            ),
            confidence=0.8,
            fixes=(Fix("Give the scheduler the real number of optimizer steps", changes_learning=True),),
            since_s=first.time_s,
        )

    def _has_stopped(self, points: Sequence[Point], start: int) -> bool:
        """True if the loss fell before index `start` and does not fall after it."""
        losses = [point.loss for point in points]
        half = start + (len(points) - start) // 2
        early, late = fmean(losses[start:half]), fmean(losses[half:])
        return losses[0] > early > 0 and early - late < self.fall * early


def _rates_of(points: Sequence[Point], low: float) -> list[float]:
    """The learning rates beside the losses. Empty if their digits do not distinguish the share `low` of their
    peak from 0."""
    rates = [each.rate for each in points if each.rate is not None and each.position is not None]
    return rates if last_place(rates) <= 1.01 * low * max(rates, default=0.0) else []


def _share_from(places: Sequence[float], start: int) -> float:
    """The share of the training from index `start` to the end."""
    first, last = places[0], places[-1]
    return (last - places[start]) / (last - first) if start < len(places) and last > first else 0.0
