"""NUM007: the training loss jumped far up and came back, again and again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from coach.lookback.history import History
from coach.model.judging.finding import Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.rules.base import Need, Rule, Threshold
from coach.rules.from_numbers.loss_course import Point, are_adversaries, courses

_SIGMA_PER_MAD = 1.4826
_LEAST_SIGMA = 0.02
"""Smallest deviation of the loss's logarithm that is assumed: on a smooth curve a change of 2 % is no
spike."""


class LossSpikes(Rule):
    """The training loss jumped far above its course and came back, several times.

    What it sees
        At least `num_spikes` places where two or more values in a row lie `sigmas` robust standard deviations
        (of the loss's logarithm) above the values before, and lose half of the progress since the beginning.
    Why it matters
        Each spike costs the steps until the loss recovers, and large models have diverged at a spike.
    When it stays silent
        On noise, even with heavy tails: single values prove nothing. On the first tenth of a course, where
        the loss falls steeply. On small jumps, as at restarts of a schedule. On one or two spikes. On
        reinforcement and adversarial training. A loss that does not come back is NUM006.
    What to do
        Clip gradients at 1.0 and lower the peak learning rate. If a spike comes back at the same batches,
        skip them. If it happens right after a resume, check that the optimizer's state and the sampler's
        position were loaded.
    Sources
        PaLM (spikes, and skipping the batches around them); OPT-175B log; Stas Bekman, Machine Learning
        Engineering: instabilities.
    """

    code = "NUM007"
    name = "loss-spikes"
    cause = "loss_spikes"
    severity = Severity.WARNING
    needs = (Need.METRICS, Need.LOG)
    sigmas = Threshold(
        8, "deviations", "of the logarithm: no noise of a healthy training reaches it twice in a row"
    )
    lost_share = Threshold(0.5, "of the progress", "less is recovered within a few steps")
    num_spikes = Threshold(3, "spikes", "once or twice is an unlucky batch", at_least=1)
    window = Threshold(25, "values", "the steps before, few against the whole curve", at_least=1)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        for points in courses(snapshot, history):
            spikes = self._spikes([point.loss for point in points])
            if len(spikes) >= self.num_spikes and not are_adversaries(snapshot):
                yield self._hit([points[place] for place in spikes])
                return

    def _hit(self, spikes: Sequence[Point]) -> Hit:
        return Hit(
            summary=f"The training loss jumped up {len(spikes)} times and came back",
            evidence=(spikes[0].evidence, spikes[-1].evidence),
            confidence=0.7,
            fixes=(
                Fix(
                    "Clip gradients at 1.0 and lower the peak learning rate by a third", changes_learning=True
                ),
            ),
            since_s=spikes[0].time_s,
        )

    def _spikes(self, losses: Sequence[float]) -> list[int]:
        """Indices at which spikes begin; a spike that lasts to the end is left out."""
        window = int(self.window)
        if len(losses) < 4 * window or any(not math.isfinite(loss) or loss <= 0 for loss in losses):
            return []
        logs = [math.log(loss) for loss in losses]
        above_all = max(logs) + 1
        start = median(losses[: max(3, len(losses) // 50)])
        spikes: list[int] = []
        place, lowest = max(window, len(losses) // 10), min(losses[:window])
        while place < len(losses) - 1:
            lowest = min(lowest, losses[place - 1])
            height = lowest + self.lost_share * (start - lowest)
            if losses[place] > height:
                before = logs[place - window : place]
                middle = median(before)
                sigma = max(_SIGMA_PER_MAD * median(abs(value - middle) for value in before), _LEAST_SIGMA)
                height = max(height, math.exp(min(middle + self.sigmas * sigma, above_all)))
            end = place
            while end < len(losses) and losses[end] > height:
                end += 1
            if end - place >= 2 and end < len(losses):
                spikes.append(place)
            place = max(end, place + 1)
        return spikes
