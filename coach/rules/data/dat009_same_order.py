"""DAT009: every epoch has the samples in the same order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import mul

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Step
from coach.rules.base import Need, Rule, Threshold

_MAX_STEPS = 2048
_MAX_RANKS = 2
_MAX_PERIOD = 32
_MIN_TURNS = 0.5
"""Least share of neighbouring bends with opposite signs. Independent batches give 0.73 by chance, a smooth
course almost 0."""
_SPREAD = 1.39
"""Standard deviation of the correlation of two independent series of bends, times the root of their number.
It is above 1 because neighbouring bends share two of three losses."""


_Pair = tuple[Sequence[float], Sequence[float]]
"""The bends of an epoch and of the next one."""


class SameOrder(Rule):
    """Every epoch has the samples in the same order.

    What it sees
        The deviation of each loss from the mean of its two neighbours: a batch that is harder than its
        neighbours stands out. If the same deviations recur at the same places of each epoch (correlation
        between consecutive epochs), the batches are the same. The rule does not compare the losses, so a
        smooth curve that repeats in every epoch (a learning-rate schedule that restarts) does not count.
    Why it matters
        The same batches in the same order teach less than shuffled ones, and the loss does not show it.
        DistributedSampler changes the order only after a call of `set_epoch`.
    When it stays silent
        On fewer than three epochs, on epochs of fewer than a dozen or more than a thousand steps. If the
        correlation can be chance. On a smooth course (one batch repeated, or the full data set as a batch).
        If the deviations are just as similar some steps further on (tasks or image sizes that alternate), or
        only at a few places (an evaluation in each epoch): neither shows an order of samples. If the loss has
        almost vanished: a few samples are memorized on purpose, as a test of a model does.
    What to do
        Call `sampler.set_epoch(epoch)` at the start of every epoch. Without a sampler set `shuffle=True`, and
        do not seed the generator again in each epoch.
    Sources
        PyTorch, torch.utils.data.distributed.DistributedSampler (the warning on set_epoch).
    """

    code = "DAT009"
    name = "same-order"
    cause = "same_order"
    severity = Severity.WARNING
    needs = (Need.METRICS,)
    correlation = Threshold(
        0.5, "of the deviations", "augmentation and learning change a batch's loss by less"
    )
    sigma = Threshold(5, "standard deviations", "of what independent epochs would show")
    min_epoch_steps = Threshold(12, "steps", "shorter epochs have too few deviations", at_least=4)
    min_epochs = Threshold(3, "epochs", "twice in a row may be chance", at_least=2)
    learned_share = Threshold(0.1, "of the first loss", "with less, the model memorizes its samples")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        pairs: list[_Pair] = []
        num_epochs = 0
        for rank in history.ranks[:_MAX_RANKS]:
            steps = history.steps(rank)
            if (steps[-1].epoch or 0) < self.min_epochs - 1:
                return
            losses = _epochs(list(steps)[-_MAX_STEPS:])
            if losses and _is_learned(losses[-1], history, self.learned_share):
                return
            epochs = [_bends(of_epoch) for of_epoch in losses]
            epochs = [bends for bends in epochs if len(bends) >= self.min_epoch_steps - 3]
            num_epochs = max(num_epochs, len(epochs))
            pairs += pairwise(epochs)
        if num_epochs < self.min_epochs:
            return
        pairs = _clipped(pairs)
        num_places = sum(min(len(one), len(other)) for one, other in pairs)
        found = _correlation(pairs, 0)
        least = max(self.correlation, self.sigma * _SPREAD / math.sqrt(num_places))
        if found < least or _turns(pairs) < _MIN_TURNS:
            return
        if _recurs(pairs, found) or _is_of_few_places(pairs, found):
            return
        yield Hit(
            summary=(
                f"Every epoch has the same order: the loss bends at the same steps in {num_epochs} epochs"
            ),
            evidence=(
                Evidence(
                    "correlation of the deviations of the loss between consecutive epochs",
                    value=round(found, 2),
                ),
                Evidence("the same by chance, at most", value=round(least, 2)),
                Evidence("places that were compared", value=num_places),
            ),
            confidence=round(min(0.95, 0.7 + 0.3 * (found - least)), 2),
            fixes=(Fix("Call sampler.set_epoch(epoch) at the start of every epoch", changes_learning=True),),
        )


def _epochs(steps: Sequence[Step]) -> list[list[float]]:
    """The losses of each epoch that was kept from its first step on."""
    found: list[list[float]] = []
    previous = steps[0]
    for step in steps:
        if step.epoch != previous.epoch or step.step == 1:
            found.append([])
        previous = step
        if found:
            found[-1].append(step.loss if step.loss is not None else math.nan)
    return [losses for losses in found if all(math.isfinite(loss) for loss in losses)]


def _bends(losses: Sequence[float]) -> list[float]:
    """Distance of each loss from the mean of its neighbours, without the first steps of an epoch and the last
    one, whose batch is smaller."""
    inner = losses[1:-1]
    return [b - (a + c) / 2 for a, b, c in zip(inner, inner[1:], inner[2:], strict=False)]


def _is_learned(newest: Sequence[float], history: History, share: float) -> bool:
    first = next((point.loss for point in history.curve if point.loss is not None), None)
    return first is not None and bool(newest) and sum(newest) / len(newest) < share * first


def _clipped(pairs: Sequence[_Pair]) -> list[_Pair]:
    """The bends with outliers reduced to the largest usual size, so that single large bends do not
    dominate."""
    sizes = sorted(max(abs(a), abs(b)) for one, other in pairs for a, b in zip(one, other, strict=False))
    limit = 3 * sizes[len(sizes) // 2] if sizes else 0.0

    def clip(bends: Sequence[float]) -> list[float]:
        return [max(-limit, min(limit, bend)) for bend in bends]

    return [(clip(one), clip(other)) for one, other in pairs]


def _correlation(pairs: Sequence[_Pair], shift: int) -> float:
    """Correlation of the bends of one epoch with those of the next one, `shift` steps later."""
    together = of_one = of_other = 0.0
    for one, other in pairs:
        length = min(len(one), len(other)) - shift
        one, other = one[:length], other[shift : shift + length]
        together += sum(map(mul, one, other))
        of_one += sum(map(mul, one, one))
        of_other += sum(map(mul, other, other))
    scale = math.sqrt(of_one * of_other)
    return together / scale if scale else 0.0


def _turns(pairs: Sequence[_Pair]) -> float:
    """The share of neighbouring bends with opposite signs."""
    signs = [a * b < 0 for one, _ in pairs for a, b in pairwise(one)]
    return sum(signs) / len(signs) if signs else 0.0


def _is_of_few_places(pairs: Sequence[_Pair], found: float) -> bool:
    """True if a few places of the epoch cause the correlation: an evaluation, a checkpoint, the first batches
    after a restart."""
    length = min(len(bends) for pair in pairs for bends in pair)
    weights = [abs(sum(one[place] * other[place] for one, other in pairs)) for place in range(length)]
    kept = sorted(range(length), key=lambda place: weights[place])[: length * 3 // 4]
    rest = [([one[place] for place in kept], [other[place] for place in kept]) for one, other in pairs]
    return _correlation(rest, 0) < found / 3


def _recurs(pairs: Sequence[_Pair], found: float) -> bool:
    """True if the bends are also similar one and two periods later: then something alternates, and it is not
    the order of samples."""
    length = min(len(bends) for pair in pairs for bends in pair)
    return any(
        min(_correlation(pairs, period), _correlation(pairs, 2 * period)) > 0.6 * found
        for period in range(2, min(length // 3, _MAX_PERIOD) + 1)
    )
