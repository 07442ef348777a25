"""DAT009: every epoch has the samples in the same order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from coach.model.finding import Evidence, Fix, Hit, Severity
from coach.model.history import History
from coach.model.metrics import Step
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule, Threshold

_MAX_STEPS = 2048
_MAX_RANKS = 2
_SPREAD = 1.39
"""Of the correlation of two independent bends, times the root of their number: neighbouring bends share two of three losses."""


class SameOrder(Rule):
    """Every epoch has the samples in the same order.

    What it sees
        How the loss bends from step to step: a batch that is harder than its neighbours stands out. When the same bends come again at the same
        places of each epoch (correlation between epochs that follow each other), the same batches came again. Bends, and not the loss
        itself, so that a course that is the same in every epoch (a schedule that restarts) does not count.
    Why it matters
        The same batches in the same order teach less than shuffled ones, and the loss looks as if nothing were wrong. With DistributedSampler the
        order changes only when it is told the epoch.
    When it stays silent
        On fewer than three epochs, on epochs of fewer than a dozen steps or of more than a thousand. Where chance could have made the correlation.
    What to do
        `sampler.set_epoch(epoch)` at the start of every epoch; without a sampler `shuffle=True`, and a generator that is not seeded anew.
    Sources
        PyTorch, torch.utils.data.distributed.DistributedSampler (the warning on set_epoch).
    """

    code = "DAT009"
    name = "same-order"
    cause = "same_order"
    severity = Severity.WARNING
    needs = (frozenset({Need.METRICS}),)
    causal_rank = 5
    thresholds = (
        Threshold(
            "correlation", 0.5, "of the bends", "augmentation and learning change a batch's loss by less"
        ),
        Threshold("sigma", 5, "standard deviations", "of what independent epochs would show"),
        Threshold("min_epoch_steps", 12, "steps", "shorter epochs have too few bends"),
        Threshold("min_epochs", 3, "epochs", "twice in a row may be chance"),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        pairs: list[tuple[float, float]] = []
        num_epochs = 0
        for rank in history.ranks[:_MAX_RANKS]:
            steps = history.steps(rank)
            if (steps[-1].epoch or 0) < self.values["min_epochs"] - 1:
                return
            epochs = [_bends(losses) for losses in _epochs(list(steps)[-_MAX_STEPS:])]
            epochs = [bends for bends in epochs if len(bends) >= self.values["min_epoch_steps"] - 3]
            num_epochs = max(num_epochs, len(epochs))
            for one, other in pairwise(epochs):
                pairs += zip(one, other, strict=False)
        if num_epochs < self.values["min_epochs"] or len(pairs) < 2:
            return
        found = _correlation(pairs)
        least = max(self.values["correlation"], self.values["sigma"] * _SPREAD / math.sqrt(len(pairs)))
        if found < least:
            return
        yield Hit(
            summary=f"Every epoch has the same order: the loss bends at the same steps in {num_epochs} epochs",
            evidence=(
                Evidence(
                    "correlation of the bends of the loss between epochs that follow each other",
                    value=round(found, 2),
                ),
                Evidence("the same by chance, at most", value=round(least, 2)),
                Evidence("places that were compared", value=len(pairs)),
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
    """How far each loss lies from the middle of its neighbours. The first steps of an epoch and its last, which is smaller, are left out."""
    inner = losses[1:-1]
    return [b - (a + c) / 2 for a, b, c in zip(inner, inner[1:], inner[2:], strict=False)]


def _correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Robust against single large bends: what stands far out counts as the largest usual one."""
    limit = 3 * sorted(max(abs(a), abs(b)) for a, b in pairs)[len(pairs) // 2]
    kept = [(max(-limit, min(limit, a)), max(-limit, min(limit, b))) for a, b in pairs]
    scale = math.sqrt(sum(a * a for a, _ in kept) * sum(b * b for _, b in kept))
    return sum(a * b for a, b in kept) / scale if scale else 0.0
