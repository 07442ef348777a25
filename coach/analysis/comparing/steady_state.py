"""Estimate a quantity in steady state, with a confidence interval.

Steps depend on each other: a loader delivers in bursts, and clocks drift. An interval from single steps would
be too narrow. So the series is cut into blocks, and the interval comes from the scatter of the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import TypeVar

from coach.lookback.history import History
from coach.model.training.metrics import Step

_T = TypeVar("_T")

WARMUP_SHARE = 0.1
MIN_WARMUP_STEPS = 3
MIN_STEADY = 16
MIN_INDEPENDENT = 3
MAX_BLOCKS = 20
MIN_BLOCK = 4

# Student's t, two-sided 95 %, by degrees of freedom.
_T95 = (
    12.71,
    4.30,
    3.18,
    2.78,
    2.57,
    2.45,
    2.36,
    2.31,
    2.26,
    2.23,
    2.20,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.10,
    2.09,
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated value and its uncertainty."""

    value: float
    noise: float | None
    """Half width of the 95 % interval of `value`; None if there are too few values."""
    num_values: int


def t95(num_values: int) -> float:
    """Half width of the 95 % interval, in standard errors that were estimated from `num_values` values (at
    least two)."""
    return _T95[min(num_values - 2, len(_T95) - 1)]


def steady(series: Sequence[_T]) -> list[_T]:
    """The series without its warm-up: the first tenth, but at least MIN_WARMUP_STEPS."""
    return list(series)[max(MIN_WARMUP_STEPS, math.ceil(len(series) * WARMUP_SHARE)) :]


def estimate(values: Sequence[float]) -> Estimate | None:
    """The median of the blocks' means. One outlying block (a checkpoint, an evaluation) does not move it. Of
    fewer than MIN_STEADY values: their median, without an interval."""
    # A sum of huge losses overflows, their mean does not.
    means = [math.fsum(value / len(block) for value in block) for block in blocks(values)]
    return _of_blocks(means, values)


def estimate_independent(values: Sequence[float]) -> Estimate | None:
    """The mean of values that are independent of each other, such as the times of epochs. Of fewer than
    MIN_INDEPENDENT values: their median, without an interval."""
    if not values:
        return None
    if len(values) < MIN_INDEPENDENT:
        return Estimate(median(values), None, len(values))
    half = t95(len(values)) * stdev(values) / math.sqrt(len(values))
    return Estimate(fmean(values), half, len(values))


def estimate_rate(amounts: Sequence[float], seconds: Sequence[float]) -> Estimate | None:
    """Amount per second: each block's amount over its seconds. The mean of the rates of single steps would
    weight short steps too much."""
    rates = [a / s for a, s in zip(amounts, seconds, strict=True)]
    pairs = zip(blocks(amounts), blocks(seconds), strict=True)
    return _of_blocks([sum(a) / sum(s) for a, s in pairs], rates)


def blocks(values: Sequence[float]) -> list[Sequence[float]]:
    """Consecutive blocks of equal length. Values that fill no block are left out at the start."""
    num_blocks = min(MAX_BLOCKS, len(values) // MIN_BLOCK)
    if num_blocks == 0:
        return []
    length = len(values) // num_blocks
    start = len(values) - length * num_blocks
    return [values[start + i * length : start + (i + 1) * length] for i in range(num_blocks)]


def _of_blocks(means: Sequence[float], values: Sequence[float]) -> Estimate | None:
    if not values:
        return None
    if len(values) < MIN_STEADY or len(means) < 2:
        return Estimate(median(values), None, len(values))
    # The median of n means has pi/2 times the variance of their mean.
    error = stdev(means) * math.sqrt(math.pi / 2 / len(means))
    return Estimate(median(means), t95(len(means)) * error, len(values))


def newest_step(history: History) -> Step | None:
    """The newest step of the rank that is furthest."""
    last = [tuple(history.steps(rank))[-1:] for rank in history.ranks]
    return max((steps[0] for steps in last if steps), key=lambda step: step.step, default=None)
