"""NUM002: the very first loss is not finite: the input, the labels or the initial weights are at fault, not
the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Counter
from coach.rules.base import Need, Rule, Threshold


class NanFromStart(Rule):
    """The loss is NaN or infinite from the very first step.

    What it sees
        Metrics that begin with step 0 or 1, in which no loss was ever finite.
    Why it matters
        Nothing was ever learned. The usual remedy, a lower learning rate, cannot help: no rate was applied
        before the first step.
    When it stays silent
        If an earlier loss was finite (NUM001), if the first steps are unknown, on fewer than `consecutive`
        steps, and on metrics that skip steps: too high a learning rate breaks a training within ten steps. If
        the program numbers its epochs or nothing: many steps may lie before its first loss (NUM001).
    What to do
        Look for NaN in the inputs and labels of the first batch, for log(0), 0/0 or an empty mask in the
        loss, and for weights that were loaded or initialised wrongly; a few steps under
        torch.autograd.set_detect_anomaly(True) name the operation.
    Sources
        torch.autograd anomaly mode; Karpathy, A Recipe for Training Neural Networks: check the loss at
        initialisation.
    """

    code = "NUM002"
    name = "nan-from-start"
    cause = "nan_loss"
    severity = Severity.CRITICAL
    needs = (Need.METRICS,)
    consecutive = Threshold(
        2, "steps", "one bad batch may be skipped; two in a row are not chance", at_least=1
    )
    first_step = Threshold(1, "step", "steps are counted from 0 or from 1")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for rank in history.ranks:
            if history.first_not_finite(rank) is None:
                continue
            steps = [step for step in history.steps(rank) if step.loss is not None]
            if len(steps) != history.num_steps(rank) or len(steps) < self.consecutive:
                continue
            first = steps[0]
            if (
                first.counter is not Counter.STEP
                or first.step > self.first_step
                or any(step.loss is not None and math.isfinite(step.loss) for step in steps)
            ):
                continue
            yield Hit(
                summary=(
                    f"The loss was never finite: not even at step {first.step}, before anything was learned"
                ),
                evidence=(
                    Evidence(f"steps of rank {rank}, none finite", value=float(len(steps)), unit="steps"),
                ),
                confidence=0.95,
                fixes=(
                    Fix(
                        "Look for NaN in the first batch and its labels, and for log(0) or an empty mask "
                        "in the loss"
                    ),
                ),
                since_s=first.time_s,
            )
            return
