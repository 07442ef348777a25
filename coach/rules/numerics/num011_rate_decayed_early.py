"""NUM011: the learning rate was down to nothing long before the end."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule, Threshold


class RateDecayedEarly(Rule):
    """The learning rate was down to nothing long before the training ended.

    What it sees
        On a training that has ended: the learning rate at a hundredth of its peak or less for the last fifth
        of the steps or more, and a loss that no longer falls there, though it fell before.
    Why it matters
        These steps learn next to nothing: the schedule was made for fewer steps than were run.
    When it stays silent
        While the training runs, on a rate that never changes, on a decay that ends with the training (cosine,
        linear), while the loss still falls, and where not all steps are known.
    What to do
        Give the scheduler the real number of optimizer steps (epochs times batches, divided by gradient
        accumulation and ranks), or end the run there.
    Sources
        Google deep learning tuning playbook: learning rate decay; torch.optim.lr_scheduler (T_max,
        total_steps).
    """

    code = "NUM011"
    name = "learning-rate-decayed-early"
    cause = "lr_decayed_early"
    severity = Severity.WARNING
    needs = (frozenset({Need.METRICS}),)
    thresholds = (
        Threshold(
            "low", 0.01, "of the peak", "no schedule means to train with a hundredth of its rate for long"
        ),
        Threshold(
            "share", 0.2, "of the steps", "cosine and linear decays pass a hundredth in the last tenth"
        ),
        Threshold("fall", 0.01, "of the loss", "less progress than noise"),
        Threshold("min_steps", 50, "records", "fewer say nothing about a schedule"),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        if not snapshot.has_ended or not history.ranks:
            return
        rank = history.ranks[0]
        steps = [step for step in history.steps(rank) if step.lr is not None and step.loss is not None]
        if len(steps) < self.values["min_steps"] or len(steps) != history.num_steps(rank):
            return
        rates = [step.lr or 0.0 for step in steps]
        peak, start = max(rates), len(steps)
        while start > 0 and rates[start - 1] <= self.values["low"] * peak:
            start -= 1
        num_low = len(steps) - start
        if peak <= 0 or start < 10 or num_low < max(20, self.values["share"] * len(steps)):
            return
        losses = [step.loss or 0.0 for step in steps]
        half = start + num_low // 2
        early, late = fmean(losses[start:half]), fmean(losses[half:])
        if not (losses[0] > early > 0 and early - late < self.values["fall"] * early):
            return
        yield Hit(
            summary=(
                "The learning rate was below a hundredth of its peak for the last "
                f"{round(100 * num_low / len(steps))} % of the steps"
            ),
            evidence=(
                Evidence("peak of the learning rate", value=peak),
                Evidence("first step with next to none", value=float(steps[start].step), unit="step"),
            ),
            confidence=0.8,
            fixes=(Fix("Give the scheduler the real number of optimizer steps", changes_learning=True),),
            since_s=steps[start].time_s,
        )
