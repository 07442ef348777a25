"""NUM010: the gradients grow without bound, and the loss no longer falls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from statistics import fmean, median

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.advice.remedies import begin_before, lower_learning_rate
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.loss_course import are_adversaries

_MOST_BETWEEN = 100
"""Most steps between two measured norms."""


class ExplodingGradients(Rule):
    """The gradients grow without bound, and the loss no longer falls.

    What it sees
        The norm of all gradients, from metrics (`grad_norm`) or from the lines of a log ('grad_norm': …,
        gnorm=…): the newest ones are a hundred times what they were in the first quarter of the run, and the
        loss is no better than it was then. Or norms beyond those of any healthy model.
    Why it matters
        Clipping hides it in the loss for a while: each step then has full length, but in a meaningless
        direction. The progress is lost, and NaN comes next.
    When it stays silent
        On single large norms, on norms that fall again, while the loss keeps falling, and on reinforcement
        and adversarial training. On growth without forty known losses. If the loss itself diverged or is not
        finite, that finding comes first.
    What to do
        Resume from a checkpoint before the growth, with a lower learning rate (a third is usual) and a longer
        warm-up. For recurrent and very deep models: normalisation, residual or gated connections, orthogonal
        initial weights, shorter sequences for backpropagation.
    Sources
        Pascanu, Mikolov, Bengio 2013, "On the difficulty of training recurrent neural networks"; SageMaker
        Debugger's ExplodingTensor; the training log of OPT-175B (a norm that drifts up before the loss does).
    """

    code = "NUM010"
    name = "exploding-gradients"
    cause = "loss_divergence"
    severity = Severity.WARNING
    needs = (Need.METRICS,)
    window = Threshold(20, "newest norms", "their median does not depend on one batch", at_least=1)
    growth = Threshold(100, "times the first quarter's median", "healthy norms vary tenfold")
    improved_share = Threshold(0.1, "of the loss", "less is the noise of batches")
    least = Threshold(1000, "norm", "below it, the norms only grew from very small ones")
    beyond = Threshold(
        1e10, "norm", "even gradients that are still multiplied by a loss scale of 2^24 stay below"
    )
    lr_divisor = Threshold(3, "times", "OPT-175B and others went on with two thirds to a tenth", at_least=1)
    warmup_steps = Threshold(100, "steps", "long enough for the optimizer's statistics")
    consecutive = Threshold(5, "norms beyond", "one may be a bad batch", at_least=1)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        """Reads the first rank: all ranks have the same gradients. For most runs the newest norm alone rules
        the fault out. Many trainings measure it only in some steps."""
        steps = history.steps(history.ranks[0])
        last = islice(reversed(steps), _MOST_BETWEEN)
        newest = next((step for step in last if step.grad_norm is not None), None)
        if newest is None or (newest.grad_norm or 0.0) < self.least:
            return
        norms = [step.grad_norm for step in steps if step.grad_norm is not None]
        norms = [norm for norm in norms if math.isfinite(norm)]
        grown = self._grown(norms, [step.loss for step in steps if step.loss is not None])
        if grown is None or are_adversaries(snapshot):
            return
        before = median(_early(norms))
        yield Hit(
            summary=f"The gradients explode: their norm is {grown:.1g}",
            evidence=(
                Evidence(
                    f"grad_norm of rank {newest.rank} at {newest.counter.word} {newest.step}",
                    value=newest.grad_norm,
                ),
                Evidence("median of the first quarter", value=float(f"{before:.3g}")),
            ),
            confidence=0.8,
            fixes=(
                *lower_learning_rate(snapshot.run, self.lr_divisor, self.warmup_steps),
                *begin_before("it", "a third of the learning rate and a longer warm-up"),
            ),
            since_s=newest.time_s,
        )

    def _grown(self, norms: Sequence[float], losses: Sequence[float]) -> float | None:
        """The typical newest norm if it is far too large, else None."""
        window = int(self.window)
        last = norms[-int(self.consecutive) :]
        if len(last) == self.consecutive and min(last) >= self.beyond:
            return median(last)
        if len(norms) < 2 * window:
            return None
        newest, before = median(norms[-window:]), median(_early(norms))
        if newest < max(self.least, self.growth * before):
            return None
        if len(losses) < 2 * window:
            return None
        has_improved = fmean(losses[-window:]) < (1 - self.improved_share) * fmean(_early(losses))
        return None if has_improved else newest


def _early(values: Sequence[float]) -> Sequence[float]:
    return values[: max(1, len(values) // 4)]
