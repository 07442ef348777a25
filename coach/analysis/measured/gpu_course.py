"""Curves of GPU measurements with one point per column of a chart: means from prefix sums.

Kept apart from `gpu_quantities.bands`, which reads every sample: a page drawn each second cannot afford that.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from coach.analysis.measured.gpu_quantities import GAP_S, GpuKey
from coach.lookback.history import History
from coach.lookback.series import Series
from coach.model.training.telemetry import GpuSample

MAX_EACH = 4
"""Up to this many GPUs are shown one by one; of more, the median, the busiest and the least busy."""

_WORK = ("power_w", "utilization_pct")


@dataclass(frozen=True, slots=True)
class ShownGpu:
    """A GPU shown for itself, or as an example of many."""

    key: GpuKey
    among: str
    """`median`, `most` or `least`; empty if every GPU is shown."""


def course(
    series: Series[GpuSample], column: str, start_s: float, end_s: float, num_points: int
) -> list[tuple[float, float | None]]:
    """The mean of a column in each of `num_points` equal parts of a period. A part without samples is left
    out; a gap of more than GAP_S breaks the line."""
    width_s = (end_s - start_s) / max(1, num_points)
    times, rows = series.times, list[tuple[float, float | None]]()
    previous_s: float | None = None
    place = bisect_left(times, start_s)
    for index in range(num_points):
        after_s = start_s + (index + 1) * width_s
        first, place = place, bisect_left(times, after_s, place)
        if place == first:
            continue
        if previous_s is not None and times[first] - previous_s > max(GAP_S, 3 * width_s):
            rows.append((times[first], None))
        value = _mean(series, column, range(first, place))
        rows.append((start_s + (index + 0.5) * width_s, value))
        previous_s = times[place - 1]
    return rows


def _mean(series: Series[GpuSample], column: str, places: range) -> float | None:
    if series.is_complete(column):
        total, seconds = series.total(column, places)
        if seconds > 0:
            return total / seconds
    known = [value for value in series.column(column, places) if math.isfinite(value)]
    return sum(known) / len(known) if known else None


def shown_gpus(history: History, gpus: Sequence[GpuKey]) -> list[ShownGpu]:
    """All GPUs if they are few; else the median one, then the busiest and the least busy over all kept
    samples."""
    if len(gpus) <= MAX_EACH:
        return [ShownGpu(key, "") for key in gpus]
    ranked = sorted(gpus, key=lambda key: _work(history.gpu_series(*key)))
    middle, most, least = ranked[len(ranked) // 2], ranked[-1], ranked[0]
    return [ShownGpu(middle, "median"), ShownGpu(most, "most"), ShownGpu(least, "least")]


def _work(series: Series[GpuSample]) -> float:
    """Mean load over all kept samples: power if measured, else utilization."""
    places = range(len(series.times))
    for column in _WORK:
        value = _mean(series, column, places)
        if value is not None:
            return value
    return -1.0
