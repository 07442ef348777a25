"""NUM008: nothing is learned: the loss stays at what guessing gives, or the learning rate is 0."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from statistics import fmean

from coach.lookback.history import History
from coach.model.judging.finding import Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.loss_course import Point, are_adversaries, courses

_NUM_CLASSES = (2, 10, 100, 1000)
_CLASSES_TOLD = re.compile(r"\bnum_(?:classes|labels)['\"]?\s?[:=]\s?(\d{1,6})\b")


class NotLearning(Rule):
    """The training loss stays at that of guessing among the classes, or the learning rate is 0.

    What it sees
        A long course of training losses that lies, without its first tenth, within one percent of ln 2, ln
        10, ln 100 or ln 1000 (what guessing evenly among 2, 10, 100 or 1000 classes gives), or of the
        logarithm of the classes that the launch or the log names (`num_classes`, `num_labels`), and does not
        fall from its first third to its last. Or a learning rate that is 0 beside each of the losses, in
        metrics or in a log, with a loss that does not fall.
    Why it matters
        The model says the same for every input. More time will not change it.
    When it stays silent
        On any other flat curve: a model that has converged, or begins from a trained one, is flat as well,
        and only its owner knows. On short courses, on reinforcement and adversarial training (a discriminator
        that guesses is the aim there). On a rate that was printed with few digits (`0.0000`), and on one that
        is 0 in the warm-up's first values alone.
    What to do
        Overfit one batch first: if that fails, look at the labels (shuffled apart from the inputs?), at
        frozen parameters, at parameters that the optimizer was not given, at a missing zero_grad or step, and
        at a learning rate that is far too high or low. Where the rate is 0: see if the schedule was given the
        number of steps, and if it is stepped.
    Sources
        Karpathy, A Recipe for Training Neural Networks (loss at initialisation, overfit one batch);
        torch.optim.lr_scheduler (LambdaLR).
    """

    code = "NUM008"
    name = "not-learning"
    cause = "not_learning"
    severity = Severity.WARNING
    needs = (frozenset({Need.METRICS}), frozenset({Need.LOG}))
    thresholds = (
        Threshold(
            "near", 0.01, "of ln(classes)", "guessing is exact; whatever has learned something is below it"
        ),
        Threshold("fall", 0.005, "of the loss", "from the first third to the last; less is noise"),
        Threshold("min_points", 50, "values", "fewer may be the warm-up"),
        Threshold("min_steps", 500, "steps told", "long warm-ups take some hundreds of steps"),
        Threshold("min_epochs", 3, "epochs told", "a warm-up is over within one or two"),
        Threshold("min_rates", 20, "values", "a rate of 0 in the first of them is a warm-up's begin"),
        Threshold("rate_fall", 0.05, "of the loss", "a loss that falls by more has learned at some rate"),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        classes = _classes(snapshot)
        for points in courses(snapshot, history):
            hit = self._without_rate(points, history) or self._guessing(points, classes)
            if hit is not None and not are_adversaries(snapshot):
                yield hit
                return

    def _without_rate(self, points: Sequence[Point], history: History) -> Hit | None:
        rates = [point.rate for point in points]
        if history.ranks:
            rates = [step.lr for step in history.steps(history.ranks[0])]
        if len(rates) < self.values["min_rates"] or any(rate != 0.0 for rate in rates):
            return None
        first, last = _thirds([point.loss for point in points])
        if not first - last < self.values["rate_fall"] * first:
            return None
        return Hit(
            summary=f"The learning rate is 0 in each of {len(rates)} values: nothing is learned",
            evidence=(points[0].evidence, points[-1].evidence),
            confidence=0.85,
            fixes=(
                Fix(
                    "Give the schedule its real numbers of warm-up steps and of all steps, and step it "
                    "after the optimizer",
                    changes_learning=True,
                ),
            ),
            since_s=points[0].time_s,
        )

    def _guessing(self, points: Sequence[Point], classes: Iterable[int]) -> Hit | None:
        if not self._is_long(points):
            return None
        means = _thirds([point.loss for point in points][len(points) // 10 :])
        if not means[0] - means[1] < self.values["fall"] * means[0]:
            return None
        near = self.values["near"]
        for number in classes:
            if all(abs(mean / math.log(number) - 1) <= near for mean in means):
                return Hit(
                    summary=(
                        f"The training loss stays at ln {number} = {math.log(number):.4g}: "
                        f"guessing among {number} classes"
                    ),
                    evidence=(points[0].evidence, points[-1].evidence),
                    confidence=0.8,
                    fixes=(
                        Fix(
                            "Overfit a single batch first; if that fails, check labels, frozen "
                            "parameters and the optimizer's parameters"
                        ),
                    ),
                    since_s=points[0].time_s,
                )
        return None

    def _is_long(self, points: Sequence[Point]) -> bool:
        if len(points) < self.values["min_points"]:
            return False
        counters = [point.counter for point in points if point.counter is not None]
        epoch = points[-1].epoch
        return bool(counters and counters[-1] >= self.values["min_steps"]) or (
            epoch is not None and epoch >= self.values["min_epochs"]
        )


def _thirds(losses: Sequence[float]) -> tuple[float, float]:
    """The means of the first third and of the last."""
    third = max(1, len(losses) // 3)
    return fmean(losses[:third]), fmean(losses[-third:])


def _classes(snapshot: TargetSnapshot) -> list[int]:
    """Numbers of classes that a model may guess among: the usual ones, and those that are told."""
    told = [snapshot.run.parameters.get("num_classes")] if snapshot.run is not None else []
    found = [_CLASSES_TOLD.search(line) for tail in snapshot.log_tails for line in tail.plain]
    told += [int(match[1]) for match in found if match is not None]
    return [*_NUM_CLASSES, *(number for number in told if isinstance(number, int) and number > 1)]
