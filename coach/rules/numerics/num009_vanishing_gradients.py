"""NUM009: the gradients are almost zero, although the loss could still fall."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, median

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Step
from coach.model.training.run import Run
from coach.rules.advice.remedies import bf16
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.telemetry_windows import quarters
from coach.rules.from_numbers.training_windows import newest_steps


class VanishingGradients(Rule):
    """The gradients are almost zero, although the loss is far from zero and does not fall.

    What it sees
        In the metrics: the median of `grad_norm` over the newest steps is almost zero, or it is exactly zero
        in `min_zeros` of them, the loss is far from zero, and its last quarter is no better than its first.
    Why it matters
        The run computes but learns nothing, because the optimizer has no gradient to follow. In fp16,
        gradients below 6e-8 become exactly zero (underflow).
    When it stays silent
        On small gradients while the loss falls, is almost zero, or has fallen by a tenth since the first
        step: that is convergence (a fall by a tenth does not count in fp16). If the gradient norm is not
        reported.
    What to do
        In fp16: use bf16, or a GradScaler, which lifts the gradients into range. Else try residual
        connections, normalisation, another initialisation or activation, and check that the loss is not
        detached from the model.
    Sources
        SageMaker Debugger's VanishingGradient (1e-7); gradsnitch GS007; Micikevicius et al. 2018, "Mixed
        precision training" (loss scaling).
    """

    code = "NUM009"
    name = "vanishing-gradients"
    cause = "vanishing_gradients"
    severity = Severity.WARNING
    needs = (Need.METRICS,)
    grad_norm = Threshold(1e-6, "of all gradients together", "a model that learns has a thousand times that")
    min_loss = Threshold(1e-3, "", "with less there is nothing left to learn")
    improved_share = Threshold(0.02, "of the loss", "less is the noise of batches")
    window = Threshold(100, "steps", "shorter plateaus are usual", at_least=1)
    min_zeros = Threshold(20, "steps", "a norm of exactly 0 is no plateau: no gradient arrives", at_least=1)
    learned_share = Threshold(0.1, "of the first loss", "a loss that fell this far had gradients")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        window = int(self.window)
        rank = history.ranks[0]
        newest = _newest_norm(newest_steps(history.steps(rank), window))
        # Fast path: for most runs the newest norm alone rules the fault out.
        if newest is None or newest > 100 * self.grad_norm or history.num_steps(rank) < self.min_zeros:
            return
        steps = newest_steps(history.steps(rank), window)
        norms = [s.grad_norm for s in steps if s.grad_norm is not None and math.isfinite(s.grad_norm)]
        losses = [s.loss for s in steps if s.loss is not None and math.isfinite(s.loss)]
        parts = quarters(losses)
        if not parts or not self._are_gone(norms, len(steps)):
            return
        has_improved = parts[-1] < (1 - self.improved_share) * parts[0]
        if has_improved or fmean(losses) < self.min_loss:
            return
        is_half = _is_half(snapshot.run)
        first = next((point.loss for point in history.curve if point.loss is not None), math.nan)
        if not is_half and parts[-1] <= (1 - self.learned_share) * first:
            return
        zeros = sum(norm == 0 for norm in norms)
        yield Hit(
            summary=(
                f"The gradients are all but zero (norm {median(norms):.1g}), and the loss stays at "
                f"{parts[-1]:.3g}"
            )
            + (": fp16 cannot hold them" if is_half else ""),
            evidence=(
                Evidence(f"grad_norm, median of {len(norms)} steps of rank {rank}", value=median(norms)),
                Evidence("of them exactly zero", value=zeros, unit="steps"),
                Evidence("mean loss of the first quarter of these steps", value=round(parts[0], 5)),
                Evidence("mean loss of the last quarter", value=round(parts[-1], 5)),
            ),
            confidence=0.9 if zeros > len(norms) / 2 else 0.8,
            fixes=tuple(bf16(snapshot.run, "bf16 instead of fp16: it has the range of fp32"))
            if is_half
            else (
                Fix(
                    (
                        "Look for a cause that blocks the gradients: saturated activations, a detached "
                        "loss, missing normalisation"
                    ),
                    changes_learning=True,
                ),
            ),
            cause="fp16_underflow" if is_half else None,
        )

    def _are_gone(self, norms: Sequence[float], num_steps: int) -> bool:
        """True if enough of the newest steps have a norm, and half of them next to none."""
        num_needed = self.window if any(norms) else self.min_zeros
        is_enough = num_steps >= num_needed and len(norms) >= num_needed / 2
        return is_enough and median(norms) <= self.grad_norm


def _newest_norm(steps: Sequence[Step]) -> float | None:
    """The newest one: a program need not report the norm of each step."""
    return next((step.grad_norm for step in reversed(steps) if step.grad_norm is not None), None)


def _is_half(run: Run | None) -> bool:
    return run is not None and run.parameters.get("precision") in ("fp16", "float16", "16")
