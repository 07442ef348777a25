"""NUM004: the loss scale of fp16 training fell so far that every step is skipped."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.advice.remedies import bf16
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_logs.aftermath import went_on
from coach.rules.from_logs.loss_lines import PROGRESS
from coach.rules.from_logs.quoted_evidence import hits_of, quote

_FAIRSEQ = re.compile(r"setting loss scale to|\bgnorm\b")
"""Lines of fairseq. It sums the loss over tokens, so a scale of 1 or less is normal; at its own minimum it
ends the program."""

_TITLE = "bf16 instead of fp16: it has the range of fp32 and needs no loss scale"


class LossScaleCollapse(Rule):
    """The loss scale of fp16 training fell so far that hardly any step is taken.

    What it sees
        DeepSpeed's "OVERFLOW! … Attempted loss scale: 2, reducing to 1" and "Current loss scale already at
        minimum", the same of apex, fairseq, Paddle and Megatron, or the scale in metrics: at its floor, three
        overflows in a row there, or eight halvings in a row to a small scale; DeepSpeed's "step=2500,
        skipped=1586".
    Why it matters
        Each overflow skips a step and halves the scale. At the floor the forward pass itself makes NaN or
        infinity: nothing is learned, and no scale helps.
    When it stays silent
        On the first overflows from a high scale: training finds its scale by them. If more losses follow the
        last overflow than ever stood between two. On a scale that grows again or never changes. On a scale
        near 1 in fairseq, where it is normal.
    What to do
        Use bf16 if the GPU supports it (compute capability 8.0 and above): it needs no scale. Else keep
        softmax, norms and the loss in fp32, lower the learning rate and warm it up. A higher initial scale
        makes it worse: it overflows sooner.
    Sources
        torch GradScaler; deepspeed/runtime/fp16/loss_scaler.py; apex amp; fairseq fp16 optimizer.
    """

    code = "NUM004"
    name = "loss-scale-collapse"
    cause = "amp_overflow"
    severity = Severity.WARNING
    needs = (Need.LOG, Need.METRICS)
    floor = Threshold(1, "loss scale", "at 1 nothing is scaled any more, and it still overflows")
    overflows = Threshold(
        3,
        "overflows at the floor",
        "one may be a bad batch; three in a row are the model's own values",
        at_least=1,
    )
    halvings = Threshold(
        8,
        "halvings without growth",
        "calibration from 65536 takes a few; eight more than that mean that no scale is found",
    )
    low = Threshold(
        256,
        "loss scale",
        "healthy fp16 training settles in the thousands; higher scales are still being calibrated",
    )
    settled = Threshold(3, "losses", "this many after the last overflow show that it has settled")
    skipped_share = Threshold(0.5, "of the steps", "healthy training skips one in some thousand")
    min_steps = Threshold(100, "steps", "calibration from 2³² skips thirty", at_least=1)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        minimum = hits_of(snapshot, self.code, "minimum")
        if minimum:
            yield self._hit(
                snapshot,
                minimum[0],
                "The loss scale is at its minimum, and steps still overflow",
                Severity.CRITICAL,
            )
            return
        half = hits_of(snapshot, self.code, "half")
        if half and not went_on(half[0], snapshot):
            yield self._hit(snapshot, half[0], "A value is too large for fp16", Severity.CRITICAL)
            return
        for name in ("reduced", "skipped", "state"):
            hits = hits_of(snapshot, self.code, name)
            scales = [float(hit.fields["scale"]) for hit in hits]
            has_floor = not any(_FAIRSEQ.search(hit.text) for hit in hits)
            if self._collapsed(scales, has_floor=has_floor):
                words = f"The loss scale fell from {max(scales):g} to {scales[-1]:g}"
            elif name != "state" and has_floor and self._stays_low(scales):
                words = f"Steps overflow again and again at a loss scale of {scales[-1]:g}"
            else:
                continue
            if not self._has_settled(hits, snapshot):
                yield self._hit(snapshot, hits[-1], words, None)
                return
        for hit in hits_of(snapshot, self.code, "share")[-1:]:
            steps, skipped = int(hit.fields["step"]), int(hit.fields["skipped"])
            if steps >= self.min_steps and skipped >= self.skipped_share * steps:
                yield self._hit(snapshot, hit, f"{skipped} of {steps} steps were skipped for overflow", None)
                return
        for rank in history.ranks:
            if history.steps(rank)[-1].loss_scale is None:
                continue
            scales = [step.loss_scale for step in history.steps(rank) if step.loss_scale is not None]
            if self._collapsed(scales):
                yield Hit(
                    summary=f"The loss scale fell from {max(scales):g} to {scales[-1]:g}",
                    evidence=(Evidence(f"loss scale of rank {rank}, newest", value=scales[-1]),),
                    confidence=0.9,
                    fixes=tuple(bf16(snapshot.run, _TITLE)),
                )
                return

    def _collapsed(self, scales: Sequence[float], *, has_floor: bool = True) -> bool:
        if len(scales) < 2 or scales[-1] > scales[-2]:
            return False
        start = len(scales) - 1
        while start > 0 and scales[start - 1] >= scales[start]:
            start -= 1
        fallen = [
            scale
            for index, scale in enumerate(scales[start:])
            if not index or scale != scales[start + index - 1]
        ]
        is_at_floor = has_floor and fallen[-1] <= self.floor
        return len(fallen) > 1 and (is_at_floor or (len(fallen) > self.halvings and fallen[-1] <= self.low))

    def _has_settled(self, hits: Sequence[LogHit], snapshot: TargetSnapshot) -> bool:
        """True if the overflows have ended: more losses follow the last one than ever stood between two."""
        file = hits[-1].file
        losses = sorted(hit.line for hit in hits_of(snapshot, PROGRESS.rule) if hit.file == file)
        num_before = [
            bisect_left(losses, line) for line in sorted(hit.line for hit in hits if hit.file == file)
        ]
        most_between = max((later - before for before, later in pairwise(num_before)), default=0)
        num_after = len(losses) - num_before[-1]
        return num_after >= self.settled and num_after > most_between

    def _stays_low(self, scales: Sequence[float]) -> bool:
        """True if steps overflow repeatedly at a scale too small to lift gradients."""
        newest = scales[-int(self.overflows) :]
        return len(newest) == self.overflows and max(newest) <= self.floor

    def _hit(self, snapshot: TargetSnapshot, hit: LogHit, summary: str, severity: Severity | None) -> Hit:
        return Hit(
            summary,
            (quote(hit),),
            0.95,
            fixes=tuple(bf16(snapshot.run, _TITLE)),
            severity=severity,
            since_s=hit.time_s,
        )
