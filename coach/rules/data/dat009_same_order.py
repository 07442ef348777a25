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
"""Of neighbouring bends: so many go the other way where each batch has samples of its own (chance: 0.73), and
hardly any in a smooth course."""
_SPREAD = 1.39
"""Of the correlation of two independent bends, times the root of their number: neighbouring bends share two
of three losses."""


_Pair = tuple[Sequence[float], Sequence[float]]
"""The bends of an epoch, and of the one after it."""


class SameOrder(Rule):
    """Every epoch has the samples in the same order.

    What it sees
        How the loss bends from step to step: a batch that is harder than its neighbours stands out. When the
        same bends come again at the same places of each epoch (correlation between epochs that follow each
        other), the same batches came again. Bends, and not the loss itself, so that a course that is the same
        in every epoch (a schedule that restarts) does not count.
    Why it matters
        The same batches in the same order teach less than shuffled ones, and the loss looks as if nothing
        were wrong. With DistributedSampler the order changes only when it is told the epoch.
    When it stays silent
        On fewer than three epochs, on epochs of fewer than a dozen steps or of more than a thousand. Where
        chance could have made the correlation. On a smooth course (the same batch again and again, the full
        batch), and where the bends are as much alike some steps further on (tasks or image sizes that take
        turns), or at a few places only (an evaluation in each epoch): none tells of an order. Where hardly
        any of the first loss is left: so few samples are learned by heart, as a test of a model does.
    What to do
        `sampler.set_epoch(epoch)` at the start of every epoch; without a sampler `shuffle=True`, and a
        generator that is not seeded anew.
    Sources
        PyTorch, torch.utils.data.distributed.DistributedSampler (the warning on set_epoch).
    """

    code = "DAT009"
    name = "same-order"
    cause = "same_order"
    severity = Severity.WARNING
    needs = (frozenset({Need.METRICS}),)
    thresholds = (
        Threshold(
            "correlation", 0.5, "of the bends", "augmentation and learning change a batch's loss by less"
        ),
        Threshold("sigma", 5, "standard deviations", "of what independent epochs would show"),
        Threshold("min_epoch_steps", 12, "steps", "shorter epochs have too few bends"),
        Threshold("min_epochs", 3, "epochs", "twice in a row may be chance"),
        Threshold("learned_share", 0.1, "of the first loss", "with less, the samples are learned by heart"),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        pairs: list[_Pair] = []
        num_epochs = 0
        for rank in history.ranks[:_MAX_RANKS]:
            steps = history.steps(rank)
            if (steps[-1].epoch or 0) < self.values["min_epochs"] - 1:
                return
            losses = _epochs(list(steps)[-_MAX_STEPS:])
            if losses and _is_learned(losses[-1], history, self.values["learned_share"]):
                return
            epochs = [_bends(of_epoch) for of_epoch in losses]
            epochs = [bends for bends in epochs if len(bends) >= self.values["min_epoch_steps"] - 3]
            num_epochs = max(num_epochs, len(epochs))
            pairs += pairwise(epochs)
        if num_epochs < self.values["min_epochs"]:
            return
        pairs = _clipped(pairs)
        num_places = sum(min(len(one), len(other)) for one, other in pairs)
        found = _correlation(pairs, 0)
        least = max(self.values["correlation"], self.values["sigma"] * _SPREAD / math.sqrt(num_places))
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
                    "correlation of the bends of the loss between epochs that follow each other",
                    value=round(found, 2),
                ),
                Evidence("the same by chance, at most", value=round(least, 2)),
                Evidence("places that were compared", value=num_places),
            ),
            confidence=round(min(0.95, 0.7 + 0.3 * (found - least)), 2),
            fixes=(Fix("Call sampler.set_epoch(epoch) at the start of every epoch", changes_learning=True),),
        )


def _epochs(steps: Sequence[Step]) -> list[list[float]]:
    """The losses of each epoch that is there from its first step on."""
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
    """How far each loss lies from the middle of its neighbours. The first steps of an epoch and its last,
    which is smaller, are left out."""
    inner = losses[1:-1]
    return [b - (a + c) / 2 for a, b, c in zip(inner, inner[1:], inner[2:], strict=False)]


def _is_learned(newest: Sequence[float], history: History, share: float) -> bool:
    first = next((point.loss for point in history.curve if point.loss is not None), None)
    return first is not None and bool(newest) and sum(newest) / len(newest) < share * first


def _clipped(pairs: Sequence[_Pair]) -> list[_Pair]:
    """Robust against single large bends: what stands far out counts as the largest usual one."""
    sizes = sorted(max(abs(a), abs(b)) for one, other in pairs for a, b in zip(one, other, strict=False))
    limit = 3 * sizes[len(sizes) // 2] if sizes else 0.0

    def clip(bends: Sequence[float]) -> list[float]:
        return [max(-limit, min(limit, bend)) for bend in bends]

    return [(clip(one), clip(other)) for one, other in pairs]


def _correlation(pairs: Sequence[_Pair], shift: int) -> float:
    """Of the bends of one epoch with those of the next, `shift` places further on."""
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
    """The share of neighbouring bends that go in opposite ways."""
    signs = [a * b < 0 for one, _ in pairs for a, b in pairwise(one)]
    return sum(signs) / len(signs) if signs else 0.0


def _is_of_few_places(pairs: Sequence[_Pair], found: float) -> bool:
    """Whether a few places of the epoch make the correlation: an evaluation, a checkpoint, the first batches
    after a restart."""
    length = min(len(bends) for pair in pairs for bends in pair)
    weights = [abs(sum(one[place] * other[place] for one, other in pairs)) for place in range(length)]
    kept = sorted(range(length), key=lambda place: weights[place])[: length * 3 // 4]
    rest = [([one[place] for place in kept], [other[place] for place in kept]) for one, other in pairs]
    return _correlation(rest, 0) < found / 3


def _recurs(pairs: Sequence[_Pair], found: float) -> bool:
    """Whether the bends are much alike a period further on, and after two: then something takes turns, and
    there is no order of samples."""
    length = min(len(bends) for pair in pairs for bends in pair)
    return any(
        min(_correlation(pairs, period), _correlation(pairs, 2 * period)) > 0.6 * found
        for period in range(2, min(length // 3, _MAX_PERIOD) + 1)
    )
