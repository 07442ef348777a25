"""Scales and ticks: the round values on an axis, and their positions.

Pure arithmetic, separate from the charts, so that all charts have the same kind of axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from coach.render.text import UNKNOWN, clock, number

_ROUND = (1.0, 2.0, 5.0, 10.0)
_ROUND_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_LABEL_GAP = 2
_LARGEST, _SMALLEST = 1e300, 1e-280
"""Larger values are drawn as the largest, smaller ones as 0: beyond them the arithmetic of a scale leaves the
range of a float."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of a chart's height."""

    low: float
    high: float
    is_log: bool = False

    def place(self, value: float | None) -> float | None:
        """The position of a value on the scale; None if the scale cannot show the value."""
        if value is None or not math.isfinite(value):
            return None
        value = bounded(value)
        if not self.is_log:
            return value
        return math.log10(value) if value > 0 else None

    @property
    def ends(self) -> tuple[float, float]:
        """The positions of both ends."""
        return (math.log10(self.low), math.log10(self.high)) if self.is_log else (self.low, self.high)

    def share(self, value: float | None) -> float | None:
        """The height of a value on the scale, from 0 to 1."""
        place, (low, high) = self.place(value), self.ends
        return None if place is None else min(max((place - low) / ((high - low) or 1.0), 0.0), 1.0)

    def ticks(self, most: int) -> list[float]:
        """At most `most` round values between the ends; on a logarithmic scale, powers of ten first."""
        if most < 1:
            return []
        if self.is_log:
            return _log_ticks(self.low, self.high, most)
        return _even_ticks(self.low, self.high, most)


def scale_of(
    values: Iterable[float | None], top: float | None = None, *, is_log: bool = False, from_zero: bool = False
) -> Scale | None:
    """The scale of some values; None without a finite value. Its height is never 0, so that a constant is
    drawn in the middle. `top` is the end of a scale that starts at 0. The scale is logarithmic only if a
    value is above 0."""
    known = [bounded(value) for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    positive = [value for value in known if value > 0] if is_log and top is None else []
    if positive:
        return _log_scale(min(positive), max(positive))
    if top is not None:
        return Scale(0.0, max(top, *known))
    low, high = min(known), max(known)
    low = min(0.0, low) if from_zero else low
    if low == high:
        low, high = low - (abs(low) * 0.1 or 1.0), high + (abs(high) * 0.1 or 1.0)
    return Scale(low, high)


def bounded(value: float) -> float:
    """The value, or the nearest one that a scale can show."""
    return min(max(value, -_LARGEST), _LARGEST) if abs(value) >= _SMALLEST else 0.0


def _log_scale(low: float, high: float) -> Scale:
    return Scale(low / 1.5, high * 1.5, True) if low == high else Scale(low, high, True)


def _even_ticks(low: float, high: float, most: int) -> list[float]:
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    size = 10.0 ** math.floor(math.log10(span / most))
    for factor in (*_ROUND, 20.0, 50.0):
        step = size * factor
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [index * step for index in range(first, last + 1)]
    return []


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        found = [f * 10.0**power for power in range(first, last + 1) for f in factors]
        found = [value for value in found if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]


@dataclass(frozen=True, slots=True)
class XAxis:
    """The horizontal axis of charts: Unix seconds, or steps."""

    start: float
    end: float
    is_time: bool = True
    origin: float | None = None
    """The time that is labelled 0; None: the start."""

    def column(self, at: float, width: int) -> int | None:
        """The cell of a time or step; None outside the axis."""
        if not self.start <= at <= self.end or width <= 0:
            return None
        share = (at - self.start) / ((self.end - self.start) or 1.0)
        return min(width - 1, round(share * (width - 1)))

    def row(self, width: int) -> str:
        """The labels below `width` cells, each beginning at its tick. Labels without room are left out."""
        cells = [" "] * width
        labels = self._labelled(max(1, width // 14))
        # From the right, so that the newest time keeps its label if two labels overlap.
        for at, label in reversed(labels) if self.origin == self.end else labels:
            column = self.column(at, width)
            if column is None:
                continue
            text = f"╵{label}"
            first = column if column + len(text) <= width else width - len(text)
            around = cells[max(0, first - _LABEL_GAP) : first + len(text) + _LABEL_GAP]
            if first < 0 or any(cell != " " for cell in around):
                continue
            # The tick of a label that is moved to the left stays in its column.
            text = text if first == column else f"{label}╵"
            cells[first : first + len(text)] = text
        return "".join(cells)

    def _labelled(self, most: int) -> list[tuple[float, str]]:
        if not self.is_time:
            found = [at for at in _even_ticks(self.start, self.end, most) if at == int(at)]
            return [(at, f"{'step ' if index == 0 else ''}{at:,.0f}") for index, at in enumerate(found)]
        origin = self.start if self.origin is None else self.origin
        span_s = self.end - self.start
        step_s = next((each for each in _ROUND_S if span_s / each <= most), 0.0)
        if not step_s:
            days = math.ceil(span_s / 86400 / most)
            step_s = 86400.0 * days
        first, last = (math.ceil((self.start - origin) / step_s), math.floor((self.end - origin) / step_s))
        newest = "newest" if origin == self.end else duration(0, step_s)
        return [
            (origin + n * step_s, duration(n * step_s, step_s) if n else newest)
            for n in range(first, last + 1)
        ]


def duration(value_s: float, step_s: float) -> str:
    """The label of a time on an axis with ticks `step_s` apart: `30 s`, `1:30`, `5 min`, `2 h`, `1 d`."""
    sign, value_s = ("−", -value_s) if value_s < 0 else ("", value_s)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if step_s % size == 0 and value_s >= size:
            return f"{sign}{value_s / size:.0f} {unit}"
    return f"{sign}{value_s:.0f} s" if value_s < 60 else f"{sign}{clock(value_s)}"


def tick_label(value: float, unit: str = "") -> str:
    """The short label of a value at the left edge of a chart: 12,500 as `12.5k`."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and abs(value) < 1000 * size:
            return f"{number(value / size, 3)}{sign}{unit}"
    text = number(value, 3)
    return UNKNOWN if text == UNKNOWN else f"{text}{unit}"
