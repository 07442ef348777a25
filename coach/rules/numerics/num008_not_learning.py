"""NUM008: nothing is learned: the loss stays at the level of guessing or at its first value, or the learning
rate is 0."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean, median

from coach.lookback.history import History, noise_of
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Counter
from coach.rules.advice.launched_with import float_parameter, int_parameter
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.evaluations import accuracies, are_guesses, evaluated, num_beside_steps
from coach.rules.from_numbers.loss_course import Point, are_adversaries, courses, is_warming_up, last_place

_NUM_CLASSES = (2, 10, 100, 1000)
_MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, for normal noise."""
_APART = 0.1
"""A loss this share of ln(classes) away from it was not that of a guess."""
_FEWEST_EPOCHS = 10
"""Number of epochs with a loss that make a long course, however few losses each has."""
_FEWEST_SAME = 100
"""Number of values that make a long course if all agree to a thousandth."""
_OVERFIT = (
    Fix(
        "Overfit a single batch first; if that fails, check labels, frozen parameters and the optimizer's "
        "parameters"
    ),
)
_WARMUP_TOLD = re.compile(r"\b(?:num_)?warmup_(?:steps|iters)['\"]?\s?[:=]\s?(\d{1,7})\b")
_CLASSES_TOLD = re.compile(r"\bnum_(?:classes|labels)['\"]?\s?[:=]\s?(\d{1,6})\b")


class NotLearning(Rule):
    """The training loss stays at the level of guessing or at its first value, or the learning rate is 0.

    What it sees
        A long course of training losses that stays, after its first tenth, within one percent of the loss of
        guessing evenly, and does not fall from its first third to its last. That is the logarithm of the
        number of classes that the launch or the log names (`num_classes`, `num_labels`); if none is named, ln
        2, ln 10, ln 100 or ln 1000, if the first loss of the training is near it. The finding says if the
        loss fell or rose to that level. Or a learning rate of 0 beside each loss, in metrics or in a log, or
        in the launch if the program reports none, with a loss that does not fall. Or a loss that stays at its
        first value from the first steps on: a warning if all values agree to a thousandth, info if they vary
        only by noise that is small enough to exclude a fall. Or evaluations that all have the same loss, from
        the first epoch on, beside a training loss that does not fall: if they agree to the last digit, or if
        no accuracy is better than a guess. Or accuracies that are all those of guessing among the classes
        that are named. Or a loss of exactly 0 up to the end, from the first value on, or after one far
        from 0. Or, as a cause of its own, a warm-up (`warmup_steps` in the launch or the log) with the same
        rate beside each loss, from a step within the warm-up to a step after its end: the schedule is never
        stepped. This is a warning if the rate is below the requested one, else info.
    Why it matters
        The model gives the same answer for every input. More time will not change that.
    When it stays silent
        On a curve that fell before it became flat, or whose beginning is unknown (resumed, converged), unless
        the number of classes is named and it lies at the level of guessing. On short courses, while the
        learning rate still rises, and on values with too few printed digits to show a fall. On reinforcement
        and adversarial training, where a discriminator should end up guessing. On a rate that was printed
        with few digits (`0.0000`) or is 0 only in the first values of a warm-up. Noise around a first value
        is only info, because a training that begins with a trained model is flat as well.
    What to do
        Overfit one batch first: if that fails, look at the labels (shuffled apart from the inputs?), at
        frozen parameters, at parameters that the optimizer does not have, at a missing zero_grad or step, and
        at a learning rate that is far too high or low. If the rate is 0: check that the schedule has the
        right number of steps and is stepped.
    Sources
        Karpathy, A Recipe for Training Neural Networks (loss at initialisation, overfit one batch);
        torch.optim.lr_scheduler (LambdaLR).
    """

    code = "NUM008"
    name = "not-learning"
    cause = "not_learning"
    severity = Severity.WARNING
    needs = (Need.METRICS, Need.LOG)
    near = Threshold(
        0.01, "of ln(classes)", "guessing is exact; a model that has learned something is below it"
    )
    start = Threshold(0.25, "of ln(classes)", "random first weights make a first loss this near to it")
    fall = Threshold(0.005, "of the loss", "from the first third to the last; less is noise")
    min_points = Threshold(50, "values", "fewer may be the warm-up", at_least=5)
    min_steps = Threshold(500, "steps told", "long warm-ups take some hundreds of steps")
    min_epochs = Threshold(3, "epochs told", "a warm-up is over within one or two")
    level = Threshold(0.01, "of the loss", "most trainings fall by more within their first steps")
    same = Threshold(0.001, "of the loss", "batches differ by more: such values come from one batch")
    min_evaluations = Threshold(5, "evaluations", "fewer may lie in the warm-up", at_least=1)
    rest = Threshold(0.02, "of the loss", "between evaluations that are all equal; less is noise")
    min_rates = Threshold(20, "values", "a rate of 0 in fewer may be the beginning of a warm-up", at_least=1)
    near_chance = Threshold(0.1, "of 1 / classes", "one answer for all samples is as often right")
    sudden = Threshold(
        0.1, "of the highest loss", "a loss that falls by learning passes all values down to 0"
    )
    low_rate = Threshold(0.9, "of the requested rate", "a rate this near to it is the requested one")
    rate_fall = Threshold(0.05, "of the loss", "a loss that falls by more has learned at some rate")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        classes = _classes(snapshot)
        shares = accuracies(snapshot, history)
        for points in courses(snapshot, history):
            rates = [point.rate for point in points]
            hit = (
                self._without_rate(points, rates, float_parameter(snapshot.run, "lr"))
                or self._unstepped(points, rates, snapshot)
                or self._guessing(points, classes)
                or self._at_chance(points, classes, shares)
                or self._fallen_to_zero(points)
                or self._unchanged(points, snapshot, are_guesses(shares, history))
                or self._unmoved(points, history)
            )
            if hit is not None and not are_adversaries(snapshot):
                yield hit
                return

    def _without_rate(
        self, points: Sequence[Point], rates: Sequence[float | None], asked: float | None
    ) -> Hit | None:
        """`asked` is the learning rate of the launch, used if the program reports none."""
        is_asked = asked == 0.0 and not any(rates)
        num_values = len(points) if is_asked else len(rates)
        if num_values < self.min_rates or not (is_asked or _are_zero(rates)):
            return None
        first, last = _thirds([point.loss for point in points])
        if not first - last < self.rate_fall * first:
            return None
        hit = _hit(
            points,
            f"The learning rate is 0 in each of {len(rates)} values: nothing is learned"
            if _are_zero(rates)
            else f"The launch asks for a learning rate of 0: nothing is learned in {len(points)} losses",
        )
        return replace(
            hit,
            confidence=0.85,
            fixes=(
                Fix("Give it a learning rate above 0: the launch asks for 0", changes_learning=True)
                if asked == 0.0
                else Fix(
                    "Give the schedule its real numbers of warm-up steps and of all steps, and step it "
                    "after the optimizer",
                    changes_learning=True,
                ),
            ),
        )

    def _unstepped(
        self, points: Sequence[Point], rates: Sequence[float | None], snapshot: TargetSnapshot
    ) -> Hit | None:
        """A hit if the rate still has its first value after the warm-up that should have raised it."""
        warmup = _warmup_steps(snapshot)
        numbers = _step_numbers(points)
        first = rates[0] if rates else None
        if not warmup or not first or len(numbers) != len(rates) or len(rates) < self.min_rates:
            return None
        if any(rate != first for rate in rates) or not numbers[0] < warmup <= numbers[-1]:
            return None
        asked = float_parameter(snapshot.run, "lr")
        is_low = asked is not None and first < self.low_rate * asked
        return Hit(
            summary=(
                f"The learning rate stays at {first:.3g} through a warm-up of {warmup} steps and after it: "
                "the schedule is never stepped"
            ),
            evidence=(
                points[0].evidence,
                Evidence("last step with this rate", value=float(numbers[-1]), unit="step"),
                *([Evidence("requested learning rate", value=asked)] if asked is not None else []),
            ),
            confidence=0.8 if is_low else 0.6,
            fixes=(
                Fix("Call scheduler.step() after each optimizer.step()", changes_learning=True),
                Fix("Give the scheduler the optimizer that takes the steps", changes_learning=True),
            ),
            severity=Severity.WARNING if is_low else Severity.INFO,
            cause="lr_never_moves",
            since_s=points[0].time_s,
        )

    def _guessing(self, points: Sequence[Point], classes: Iterable[tuple[int, bool]]) -> Hit | None:
        if not self._is_long(points):
            return None
        losses = [point.loss for point in points]
        means = _thirds(losses[len(losses) // 10 :])
        if not means[0] - means[1] < self.fall * means[0]:
            return None
        near = self.near
        for number, is_told in classes:
            guess = math.log(number)
            is_known = is_told or (_is_beginning(points) and self._starts_at(losses[0], guess))
            if is_known and all(abs(mean / guess - 1) <= near for mean in means):
                course = _course_to(losses, guess, f"ln {number} = {guess:.4g}")
                return _hit(points, f"The training loss {course}: guessing among {number} classes")
        return None

    def _at_chance(
        self, points: Sequence[Point], classes: Iterable[tuple[int, bool]], shares: Sequence[float]
    ) -> Hit | None:
        """A hit for accuracies that are all those of guessing among a number of classes that is named."""
        if len(shares) < self.min_evaluations or not self._is_long(points) or is_warming_up(points):
            return None
        for number, is_told in classes:
            if is_told and all(abs(share * number - 1) <= self.near_chance for share in shares):
                each = f"{1 / number:.3g} in each of {len(shares)} values"
                return _hit(points, f"The accuracy is about {each}: guessing among {number} classes")
        return None

    def _fallen_to_zero(self, points: Sequence[Point]) -> Hit | None:
        places = [place for place, point in enumerate(points) if point.loss != 0.0]
        if not places or len(points) - places[-1] <= self.min_rates:
            return None
        last = points[places[-1]].loss
        if not last >= self.sudden * max(point.loss for point in points):
            return None
        falls = f"falls from {last:.4g} to exactly 0 at once and stays there"
        return _hit(points[places[-1] :], f"The training loss {falls}: nothing is learned")

    def _starts_at(self, first: float, guess: float) -> bool:
        """True if a model that guesses may begin with this loss, which then shows the number of classes."""
        return abs(first / guess - 1) <= self.start

    def _unchanged(self, points: Sequence[Point], snapshot: TargetSnapshot, is_guess: bool) -> Hit | None:
        """A hit if all evaluations had one loss, while the training loss did not fall: the model stays as it
        is."""
        losses = evaluated(snapshot, "loss")
        if len(losses) < self.min_evaluations or not self._shows_beginning(points):
            return None
        if num_beside_steps(snapshot) > len(points) / 2:  # the last one may be printed again and again
            return None
        first, last = _thirds([point.loss for point in points])
        if not _are_equal(losses, self.same / 2) or not first - last < self.rest * first:
            return None
        if not is_guess and len(set(losses)) > 1:
            return None
        each = f"{median(losses):.4g} in each of {len(losses)} evaluations"
        return _hit(points, f"The loss on held-out data is {each}: nothing is learned")

    def _unmoved(self, points: Sequence[Point], history: History) -> Hit | None:
        losses = [point.loss for point in points]
        if not self._shows_beginning(points) or not all(map(math.isfinite, losses)):
            return None
        level = median(losses)
        stays = f"The training loss is {level:.4g} from its first value to its last"
        # In a long run a point is a mean of many steps, so the kept steps must be equal too.
        single = [step.loss for step in history.steps(history.ranks[0])] if history.ranks else []
        known = [loss for loss in (*losses, *single) if loss is not None]
        if not any(known) or _are_equal(known, self.same):
            return _hit(points, f"{stays}: nothing is learned")
        if not 0 < last_place(losses) <= self.level * level or not _is_level(losses, self.level * level):
            return None
        hit = _hit(points, f"{stays}: it has not fallen by more than its noise")
        return replace(hit, confidence=0.5, severity=Severity.INFO)

    def _shows_beginning(self, points: Sequence[Point]) -> bool:
        return self._is_long(points) and _is_beginning(points) and not is_warming_up(points)

    def _is_long(self, points: Sequence[Point]) -> bool:
        """True if a warm-up is over, and the points are enough for a mean. A point by epoch is itself a mean
        of many steps. Values that are all the same are no warm-up much earlier: batches differ."""
        epochs = {int(point.epoch) for point in points if point.epoch is not None}
        if len(points) < self.min_points:
            return len(epochs) >= _FEWEST_EPOCHS
        num_steps = points[-1].step if points[-1].counter is Counter.STEP else None
        if (num_steps or 0) >= self.min_steps or max(epochs, default=0) >= self.min_epochs:
            return True
        first = points[0].loss
        are_same = all(abs(point.loss - first) <= self.same * first for point in points)
        return len(points) >= _FEWEST_SAME and are_same and not is_warming_up(points)


def _hit(points: Sequence[Point], summary: str) -> Hit:
    """The first and the last value prove it."""
    proof = (points[0].evidence, points[-1].evidence)
    return Hit(summary, proof, 0.8, fixes=_OVERFIT, since_s=points[0].time_s)


def _are_equal(values: Sequence[float], share: float) -> bool:
    """True for values above 0 that differ by at most this share of their median, told to enough digits."""
    level = median(values)
    most = share * level
    return last_place(values) <= most and all(abs(value - level) <= most for value in values)


def _are_zero(rates: Sequence[float | None]) -> bool:
    return bool(rates) and all(rate == 0.0 for rate in rates)


def _thirds(losses: Sequence[float]) -> tuple[float, float]:
    """The means of the first third and of the last."""
    third = max(1, len(losses) // 3)
    return fmean(losses[:third]), fmean(losses[-third:])


def _step_numbers(points: Sequence[Point]) -> list[int]:
    """The step of each point that is counted by steps."""
    return [point.step for point in points if point.step is not None and point.counter is Counter.STEP]


def _warmup_steps(snapshot: TargetSnapshot) -> int | None:
    """The number of warm-up steps from the launch, else from the log; None if neither has it."""
    if (launched := int_parameter(snapshot.run, "warmup_steps")) is not None:
        return launched
    found = map(_WARMUP_TOLD.search, snapshot.lines)
    return next((int(match[1]) for match in found if match is not None), None)


def _is_beginning(points: Sequence[Point]) -> bool:
    """True if the first point is the beginning of a training that was not resumed."""
    epoch = points[0].epoch
    steps = [point.step for point in points[:2] if point.step is not None]
    if epoch is not None and epoch > 1:
        return False
    if len(steps) < 2:
        return epoch is not None
    return steps[0] <= max(1, steps[1] - steps[0])


def _is_level(losses: Sequence[float], fall: float) -> bool:
    """True if the first value lies within the noise of the rest, and the noise excludes a change by `fall`
    between the first fifth, the middle and the last third."""
    sigma = noise_of(losses)
    count = len(losses)
    parts = (losses[: count // 5], losses[count // 5 : -count // 3], losses[-count // 3 :])
    first, middle, last = (median(part) for part in parts)
    error = _MEDIAN_ERROR * sigma * math.sqrt(1 / len(parts[0]) + 1 / len(parts[2]))
    if abs(losses[0] - last) > max(3 * sigma, fall):
        return False
    return max(abs(first - last), abs(middle - last)) + 2 * error <= fall


def _course_to(losses: Sequence[float], guess: float, level: str) -> str:
    """How the loss came to the level of guessing: it stays there, or fell or rose to it."""
    tenth = max(1, len(losses) // 10)
    later = (fmean(losses[start : start + tenth]) for start in range(tenth, len(losses), tenth))
    known = filter(math.isfinite, (*losses[:tenth], *later))
    farthest = max(known, key=lambda loss: abs(loss - guess), default=guess)
    if abs(farthest / guess - 1) <= _APART:
        return f"stays at {level}"
    return f"{'fell' if farthest > guess else 'rose'} from {farthest:.3g} to {level} and stays there"


def _classes(snapshot: TargetSnapshot) -> list[tuple[int, bool]]:
    """(number of classes, True if the launch or the log names it): the number that the launch names; else the
    usual ones, and those that the log names."""
    asked = int_parameter(snapshot.run, "num_classes") or 0
    if asked > 1:
        return [(asked, True)]
    found = map(_CLASSES_TOLD.search, snapshot.lines)
    told = {int(match[1]) for match in found if match is not None}
    return [
        *((number, number in told) for number in _NUM_CLASSES),
        *((number, True) for number in sorted(told.difference(_NUM_CLASSES)) if number > 1),
    ]
