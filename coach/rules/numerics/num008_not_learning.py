"""NUM008: the training loss stays at what guessing gives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from coach.lookback.history import History
from coach.model.judging.finding import Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.loss_course import Point, are_adversaries, courses

_NUM_CLASSES = (2, 10, 100, 1000)


class NotLearning(Rule):
    """The training loss stays at that of guessing among the classes.

    What it sees
        A long course of training losses that lies, without its first tenth, within one percent of ln 2, ln
        10, ln 100 or ln 1000 (what guessing evenly among so many classes gives) and does not fall from its
        first third to its last.
    Why it matters
        The model says the same for every input. More time will not change it.
    When it stays silent
        On any other flat curve: a model that has converged, or begins from a trained one, is flat as well,
        and only its owner knows. On short courses, on reinforcement and adversarial training (a discriminator
        that guesses is the aim there).
    What to do
        Overfit one batch first: if that fails, look at the labels (shuffled apart from the inputs?), at
        frozen parameters, at parameters that the optimizer was not given, at a missing zero_grad or step, and
        at a learning rate that is far too high or low.
    Sources
        Karpathy, A Recipe for Training Neural Networks (loss at initialisation, overfit one batch).
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
        Threshold("min_steps", 500, "steps or epochs told", "long warm-ups take some hundreds of steps"),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for points in courses(snapshot, history):
            num_classes = self._guesses_among(points)
            if num_classes is not None and not are_adversaries(snapshot):
                yield Hit(
                    summary=(
                        f"The training loss stays at ln {num_classes} = {math.log(num_classes):.4g}: "
                        f"guessing among {num_classes} classes"
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
                return

    def _guesses_among(self, points: Sequence[Point]) -> int | None:
        counters = [point.counter for point in points if point.counter is not None]
        if len(points) < self.values["min_points"] or not counters or counters[-1] < self.values["min_steps"]:
            return None
        losses = [point.loss for point in points][len(points) // 10 :]
        third = len(losses) // 3
        first, last = fmean(losses[:third]), fmean(losses[-third:])
        if not first - last < self.values["fall"] * first:
            return None
        near = self.values["near"]
        return next(
            (
                number
                for number in _NUM_CLASSES
                if all(abs(mean / math.log(number) - 1) <= near for mean in (first, last))
            ),
            None,
        )
