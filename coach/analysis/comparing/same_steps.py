"""Compare the speed of two runs over the same steps, with a confidence interval. Pure.

Both runs see the same samples at the same step, so the cost of a special step (a long batch, an evaluation
before it) is the same in both. Blocks of the same steps are compared one by one, and the interval comes from
the scatter of their ratios.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, stdev

from coach.analysis.comparing.steady_state import MIN_STEADY, Estimate, blocks, steady, t95
from coach.model.training.metrics import Step


def speedup(before: Sequence[Step], after: Sequence[Step]) -> Estimate | None:
    """Samples per second of the second run over the first, over their common steps; None if there are none.

    The value is the median of the blocks' ratios. The 95 % interval is computed from their logarithms, whose
    scatter is symmetric, and given as half width around the value; None if there are too few steps.
    """
    old, new = _timed(before), _timed(after)
    common = steady(sorted(old.keys() & new.keys()))
    if not common:
        return None
    series = [[old[step][0] for step in common], [old[step][1] for step in common]]
    series += [[new[step][0] for step in common], [new[step][1] for step in common]]
    cut = [blocks(values) for values in series]
    if len(common) < MIN_STEADY or len(cut[0]) < 2:
        return Estimate(_rate(*series[2:]) / _rate(*series[:2]), None, len(common))
    ratios = [math.log(_rate(c, d) / _rate(a, b)) for a, b, c, d in zip(*cut, strict=True)]
    half = t95(len(ratios)) * stdev(ratios) * math.sqrt(math.pi / 2 / len(ratios))
    value = math.exp(median(ratios))
    return Estimate(value, value * math.expm1(half), len(common))


def says_difference(ratio: Estimate, min_ratio: float) -> bool:
    """True if a ratio differs from 1 by more than its interval and more than `min_ratio`."""
    return ratio.noise is not None and abs(ratio.value - 1.0) > max(ratio.noise, min_ratio)


def _timed(series: Sequence[Step]) -> dict[int, tuple[float, float]]:
    """Step → samples and seconds; for a step that was repeated after a resume, the last time."""
    return {
        step.step: (float(step.num_samples_global), step.step_time_s)
        for step in series
        if step.num_samples_global and step.step_time_s
    }


def _rate(samples: Sequence[float], seconds: Sequence[float]) -> float:
    return sum(samples) / sum(seconds)
