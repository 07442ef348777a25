"""NUM003: many gradients are not finite, although the loss is finite. A gradient scaler skips such steps;
without one they destroy the weights."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from statistics import fmean

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import Step
from coach.rules.advice.remedies import bf16
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.loss_course import Point, are_adversaries, courses
from coach.rules.from_numbers.training_windows import newest_steps

_NORM = re.compile(
    r"(?<![A-Za-z])grad(?:ient)?[_ ]?norm['\"]?\s?[:= ]\s?['\"]?(?P<value>nan|inf|\d)", re.IGNORECASE
)

_FEW = 4
"""While a gradient scaler looks for its loss scale, hardly so many norms in a row are finite."""


class GradientNotFinite(Rule):
    """Many gradient norms are NaN or infinite while the loss is finite.

    What it sees
        In the metrics: `grad_norm` is not finite in a tenth or more of the newest steps with a finite loss.
        In a log: at least the newest `min_lines` lines with a finite loss all have a gradient norm that is
        not finite (`grad_norm nan`), and the loss does not fall, or the norm was finite before; of NaN behind
        finite norms, `min_lines_of_nan` lines.
    Why it matters
        With a gradient scaler each of these steps is skipped, and its time is lost. Without one, the weights
        become NaN.
    When it stays silent
        On single steps: a gradient scaler finds the loss scale of fp16 by such steps. On the first steps. If
        the loss is not finite (NUM001). In a log whose norm was never finite, while the loss falls: then the
        program computes the norm wrongly.
    What to do
        Use bf16 if the GPU supports it. Else keep softmax, normalization layers and the loss in fp32. A
        higher initial loss scale makes it worse. Clipping does not help: by a NaN norm it makes all gradients
        NaN, by an infinite norm it makes the finite ones zero.
    Sources
        torch GradScaler; torch.nn.utils.clip_grad_norm_ (error_if_nonfinite).
    """

    code = "NUM003"
    name = "gradient-not-finite"
    cause = "gradient_not_finite"
    severity = Severity.WARNING
    needs = (Need.METRICS, Need.LOG)
    share = Threshold(0.1, "of the steps", "a tenth of the steps lost is worth a change")
    window = Threshold(100, "steps", "long enough for single overflows to be rare", at_least=1)
    min_steps = Threshold(30, "steps", "of NaN beside finite norms: a tenth of them is no chance", at_least=1)
    settling = Threshold(20, "steps", "one halving a step brings a loss scale of 2^16 down to 1 in 16 steps")
    min_lines_of_nan = Threshold(
        2,
        "lines",
        "behind finite norms: a gradient scaler makes them infinite, rarely NaN, and not twice in a row",
        at_least=1,
    )
    min_lines = Threshold(
        10, "lines", "programs often print every tenth step, so ten lines are a hundred steps", at_least=1
    )
    fall = Threshold(0.02, "of the loss", "if the loss falls by more, the training learns")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        yield from list(self._from_metrics(snapshot, history)) or self._from_log(snapshot)

    def _from_metrics(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for rank in history.ranks:
            after_settling = history.num_steps(rank) - int(self.settling)
            newest = newest_steps(history.steps(rank), min(int(self.window), max(0, after_settling)))
            if math.isfinite(sum([step.grad_norm or 0.0 for step in newest])):
                continue
            steps = [
                step
                for step in newest
                if step.grad_norm is not None and step.loss is not None and math.isfinite(step.loss)
            ]
            bad = [step for step in steps if step.grad_norm is not None and not math.isfinite(step.grad_norm)]
            needed = self.min_steps if _some_are_nan(bad, steps) else self.window
            if len(steps) < needed or len(bad) < self.share * len(steps):
                continue
            yield Hit(
                summary=f"{len(bad)} of the newest {len(steps)} gradients are not finite, while the loss is",
                evidence=(
                    Evidence(f"first of them, rank {rank}", value=float(bad[0].step), unit="step"),
                    Evidence("not finite", value=round(100 * len(bad) / len(steps)), unit="%"),
                ),
                confidence=0.9,
                fixes=tuple(bf16(snapshot.run, "bf16 instead of fp16: it has the range of fp32")),
                since_s=bad[0].time_s,
            )
            return

    def _from_log(self, snapshot: TargetSnapshot) -> Iterable[Hit]:
        for points in courses(snapshot, History()):  # without metrics, it reads the printed lines
            bad = _newest_without_norm(points)
            before = points[: len(points) - len(bad)]
            was_finite = any(map(_has_finite_norm, before))
            is_sudden = len(before) >= _FEW and all(map(_has_finite_norm, before[-_FEW:]))
            is_nan = bool(bad) and _norm_of(bad[0]) == "nan"
            if len(bad) < (self.min_lines_of_nan if is_nan and is_sudden else self.min_lines):
                continue
            is_falling = self._falls([point.loss for point in bad])
            if (is_falling and not was_finite) or are_adversaries(snapshot):
                continue
            yield Hit(
                summary=(
                    f"The gradients are {'NaN' if is_nan else 'infinite'} in the newest {len(bad)} lines "
                    "with a loss, "
                    + ("and were finite before" if is_falling else "and the loss does not fall")
                ),
                evidence=(bad[0].evidence, bad[-1].evidence),
                confidence=0.8,
                fixes=tuple(bf16(snapshot.run, "bf16 instead of fp16: it has the range of fp32")),
                cause="nan_loss" if is_nan else "amp_overflow",
                since_s=bad[0].time_s,
            )
            return

    def _falls(self, losses: Sequence[float]) -> bool:
        """True if the mean of the later half is clearly below that of the earlier half."""
        half = len(losses) // 2
        first, last = fmean(losses[:half]), fmean(losses[-half:])
        return first - last >= self.fall * first


def _some_are_nan(bad: Sequence[Step], steps: Sequence[Step]) -> bool:
    """True for NaN beside finite norms."""
    return len(bad) < len(steps) and any(math.isnan(step.grad_norm or 0.0) for step in bad)


def _has_finite_norm(point: Point) -> bool:
    return _norm_of(point).isdigit()


def _norm_of(point: Point) -> str:
    """The gradient norm beside a loss: `nan`, `inf`, a digit, or an empty text."""
    found = _NORM.search(point.line)
    return found["value"].casefold() if found else ""


def _newest_without_norm(points: Sequence[Point]) -> Sequence[Point]:
    """The newest losses without a finite norm beside them. A loss of 0 may itself hide a NaN: that is
    NUM001."""
    start = len(points)
    while start > 0 and points[start - 1].loss > 0 and _norm_of(points[start - 1]) in ("nan", "inf"):
        start -= 1
    return points[start:]
