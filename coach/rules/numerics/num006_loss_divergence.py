"""NUM006: the training loss rose far above what it had been, and stays there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from coach.model.finding import Evidence, Fix, Hit, Severity
from coach.model.history import History
from coach.model.log import LogHit
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule, Threshold
from coach.rules.losslines import PROGRESS
from coach.rules.quoting import quote

_MAX_BLOCKS = 100
_PLAIN_KEY = re.compile(
    r"(?:.*[ _/.])?(?:train(?:ing)?|lm|total|avg|mean|epoch|batch|step|iter)?[ _/.]?loss\b.*", re.IGNORECASE
)
_ADVERSARIES = re.compile(
    r"reward|episode|\breturns?\b|rollout|policy|actor|critic|advantage|epsilon|discriminator|generator|\b[dg]_?loss|loss_?[dg]\b|\bgan\b",
    re.IGNORECASE,
)
"""Words of reinforcement and adversarial training, where a loss that rises says nothing."""
_COUNTER = re.compile(
    r"\b(?:global[ _]?step|step|iter(?:ation)?|epoch|update)s?\b\D{0,8}?(\d+)", re.IGNORECASE
)
_NEAR_START = 0.25
"""Of the first losses: a loss that is so near to them may belong to another run in the same log, or to the next fold."""


@dataclass(frozen=True, slots=True)
class _Rise:
    """Where the loss left its course: places in the series."""

    start: int
    highest_before: float
    lowest_after: float
    lost_share: float
    """Of the progress since the beginning."""


class LossDivergence(Rule):
    """The training loss rose far above what it had been, and stays there.

    What it sees
        A series of training losses, from metrics or from the lines of a log, whose newest values all lie above the highest of the stretch
        before by half, and that lost at least half of the progress since the beginning.
    Why it matters
        Such a run seldom comes back: what it learned is gone, and the hours from the jump on are lost.
    When it stays silent
        On single spikes, on noise (what came before is judged by its highest value), on restarts of a learning rate schedule, which lose
        little of the progress, where the steps begin anew (another run or fold in the same log), and on reinforcement or adversarial
        training, by its words. A loss that is not finite is NUM001.
    What to do
        Go back to a checkpoint before the jump and go on with a lower learning rate (a third is usual), longer warm-up or gradient
        clipping at 1.0; skip the batches around the jump if it comes back at the same place.
    Sources
        OPT-175B and BLOOM training chronicles; Google deep learning tuning playbook: unstable training.
    """

    code = "NUM006"
    name = "loss-divergence"
    cause = "loss_divergence"
    severity = Severity.WARNING
    needs = (frozenset({Need.METRICS}), frozenset({Need.LOG}))
    causal_rank = 2
    consequence_of = ("NUM001", "NUM004")
    thresholds = (
        Threshold(
            "rise", 1.5, "times the highest before", "noise and schedules stay below it; divergence passes 2"
        ),
        Threshold("consecutive", 3, "values", "a spike is one value, or two"),
        Threshold("lost_share", 0.5, "of the progress", "a restart of the schedule loses a tenth or two"),
    )

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        if history.ranks:
            yield from self._from_metrics(history)
        else:
            yield from self._from_log(snapshot)

    def _from_metrics(self, history: History) -> Iterable[Hit]:
        points = [point for point in history.curve if point.loss is not None]
        rise = self._rise([point.loss for point in points if point.loss is not None])
        if rise is not None:
            first = points[rise.start]
            evidence = Evidence(f"step {first.step}, where it left its course", value=first.loss)
            yield self._hit(rise, evidence, first.time_s)

    def _from_log(self, snapshot: TargetSnapshot) -> Iterable[Hit]:
        series: dict[tuple[str, int | None, str], list[LogHit]] = {}
        for hit in snapshot.log_hits:
            if hit.rule == PROGRESS.rule:
                series.setdefault((hit.file, hit.rank, hit.fields["key"]), []).append(hit)
        for (_, _, key), hits in series.items():
            if not _PLAIN_KEY.fullmatch(key) or self._rise(_losses(hits)) is None:
                continue
            hits = _since_last_start(hits)
            rise = self._rise(_losses(hits))
            if rise is None or (_counter(hits[rise.start]) is None and _starts_anew(_losses(hits), rise)):
                continue
            if not any(_ADVERSARIES.search(line) for tail in snapshot.log_tails for line in tail.lines):
                yield self._hit(rise, quote(hits[rise.start]), hits[rise.start].time_s)
                return

    def _hit(self, rise: _Rise, evidence: Evidence, time_s: float | None) -> Hit:
        return Hit(
            summary=f"The training loss left its course: {rise.highest_before:.4g} at most before, {rise.lowest_after:.4g} at least since",
            evidence=(
                evidence,
                Evidence(
                    "of the progress since the beginning is lost",
                    value=round(100 * rise.lost_share),
                    unit="%",
                ),
            ),
            confidence=0.8,
            fixes=(
                Fix(
                    "Go back to a checkpoint before the jump, and on with a lower learning rate and gradients clipped at 1.0",
                    changes_learning=True,
                ),
            ),
            since_s=time_s,
        )

    def _rise(self, losses: Sequence[float]) -> _Rise | None:
        """The latest place from which on all values lie above those before."""
        consecutive = int(self.values["consecutive"])
        if len(losses) < 2 * consecutive or any(not math.isfinite(loss) or loss <= 0 for loss in losses):
            return None
        size = max(1, math.ceil(len(losses) / _MAX_BLOCKS))
        blocks = [losses[place : place + size] for place in range(0, len(losses), size)]
        lows, highs = [min(block) for block in blocks], [max(block) for block in blocks]
        lowest_after = math.inf
        for start in range(len(blocks) - 1, consecutive - 1, -1):
            lowest_after = min(lowest_after, lows[start])
            if len(blocks) - start < consecutive:
                continue
            half = start // 2 if start >= 2 * consecutive else 0
            highest, lowest = max(highs[half:start]), min(lows[:start])
            gained = highs[0] - lowest
            lost = (lowest_after - lowest) / gained if gained > 0 else math.inf
            if lowest_after >= self.values["rise"] * highest and lost >= self.values["lost_share"]:
                return _Rise(start * size, highest, lowest_after, min(lost, 9.99))
        return None


def _losses(hits: Sequence[LogHit]) -> list[float]:
    return [float(hit.fields["value"]) for hit in hits]


def _counter(hit: LogHit) -> int | None:
    """The step or epoch of a line, if it tells."""
    found = _COUNTER.search(hit.text)
    return int(found[1]) if found else None


def _since_last_start(hits: list[LogHit]) -> list[LogHit]:
    """What was said since the steps last began anew: another run, fold or phase has a course of its own."""
    counters = [_counter(hit) for hit in hits]
    start = 0
    for place, (before, after) in enumerate(pairwise(counters), 1):
        if before is not None and after is not None and after < before:
            start = place
    return hits[start:]


def _starts_anew(losses: Sequence[float], rise: _Rise) -> bool:
    first, after = losses[0], losses[rise.start]
    return abs(after - first) <= _NEAR_START * first
