"""How GPUs went over a time, in as few numbers as a picture has columns: means by difference of sums.

Apart from `gpu_quantities.bands`, which looks at every sample: a page that is drawn each second cannot.
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
"""More GPUs are not shown each: the middle one, the one that did most and the one that did least are."""

_WORK = ("power_w", "utilization_pct")


@dataclass(frozen=True, slots=True)
class ShownGpu:
    """One GPU that stands for itself or for its place among many."""

    key: GpuKey
    among: str
    """`median`, `most` or `least`; empty where each is shown."""


def course(
    series: Series[GpuSample], column: str, start_s: float, end_s: float, num_points: int
) -> list[tuple[float, float | None]]:
    """The mean of a column in each of `num_points` equal parts of a time. A part without a sample is left
    out; a silence of more than GAP_S breaks the line."""
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
    """A few GPUs each; of more the middle one first, then those that did most and least over all."""
    if len(gpus) <= MAX_EACH:
        return [ShownGpu(key, "") for key in gpus]
    ranked = sorted(gpus, key=lambda key: _work(history.gpu_series(*key)))
    middle, most, least = ranked[len(ranked) // 2], ranked[-1], ranked[0]
    return [ShownGpu(middle, "median"), ShownGpu(most, "most"), ShownGpu(least, "least")]


def _work(series: Series[GpuSample]) -> float:
    """How hard it worked over all that is kept: by its power, else by its utilization."""
    places = range(len(series.times))
    for column in _WORK:
        value = _mean(series, column, places)
        if value is not None:
            return value
    return -1.0
