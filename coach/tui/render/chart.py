"""Plots in braille dots, and several of them above one time axis.

The dots are set by plotille; scales, labels and tones are coach's own, because lines here carry tones and
never terminal codes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import plotille

from coach.tui.render.text import UNKNOWN, Line, Span, Tone, age, clip, crop, fit, line, muted, number, strong

Point = tuple[float, float | None]

LABEL_WIDTH = 7
MIN_HEIGHT = 3
MAX_HEIGHT = 10
"""Lines of one chart among several, with its title."""

_EMPTY, _BLANK = 0x2800, "\u2800"
_LEFT, _RIGHT = 0x47, 0xB8
"""Braille: the code of the cell without dots, and the dots of a cell's two columns."""
_MIDDLE = 0x12
"""The dots of a flat line."""


@dataclass(frozen=True, slots=True)
class Stroke:
    """How a line is drawn: which of eight dots along it are set, so that lines are told apart in black and
    white too."""

    dots: str
    tone: Tone

    @property
    def mark(self) -> Span:
        """A piece of such a line, for a legend."""
        cells = [self.kept(at) & _MIDDLE for at in range(len(self.dots) // 2)]
        return Span("".join(chr(_EMPTY + bits) for bits in cells), self.tone)

    def kept(self, at: int) -> int:
        """The dots of the cell in a column that may be set."""
        first = 2 * at % len(self.dots)
        return _LEFT * (self.dots[first] == "#") | _RIGHT * (self.dots[first + 1] == "#")


STROKES = (
    Stroke("########", "accent"),
    Stroke("######  ", ""),
    Stroke("#   #   ", ""),
    Stroke("####  # ", "muted"),
)


@dataclass(frozen=True, slots=True)
class Chart:
    """Some lines on one scale. `top` ends a scale that starts at 0; without, the scale is that of the
    values."""

    title: str
    told: str
    """The newest values, in words."""
    lines: tuple[Sequence[Point], ...]
    """Each in its own of STROKES; where several meet in one cell, the first gives its tone."""
    top: float | None = None
    unit: str = ""


def plot(
    lines: Sequence[Sequence[Point]], width: int, height: int, x: tuple[float, float], y: tuple[float, float]
) -> list[str]:
    """Points joined by straight lines between the ends of both scales. A value that is not finite breaks its
    line."""
    if width <= 0 or height <= 0:
        return []
    last_column, last_row = width * 2 - 1, height * 4 - 1
    # One unit of the canvas is one dot: the ends of the scales then are dots as well.
    canvas = plotille.Canvas(width, height, 0, 0, width * 2, height * 4)

    def dot(value: float, ends: tuple[float, float], last: int) -> int:
        share = (value - ends[0]) / ((ends[1] - ends[0]) or 1.0)
        return round(min(max(share, 0.0), 1.0) * last)

    for points in lines:
        previous: tuple[int, int] | None = None
        for at, value in points:
            if value is None or not math.isfinite(value):
                previous = None
                continue
            here = dot(at, x, last_column), dot(value, y, last_row)
            canvas.line(*(previous or here), *here)
            previous = here
    rows: list[str] = canvas.plot("\n").split("\n")
    return rows


def legend_line(names: Sequence[str], width: int) -> Line:
    """Which stroke is whose."""
    parts = [
        part for stroke, name in zip(STROKES, names, strict=False) for part in (stroke.mark, f" {name}   ")
    ]
    return clip(line(" " * (LABEL_WIDTH + 1), *parts), width)


def chart_lines(
    charts: Sequence[Chart], width: int, height: int, start_s: float, end_s: float, names: Sequence[str] = ()
) -> list[Line]:
    """The charts one above the other in `width` × `height` cells, or more lines where there is no room; below
    them their time axis.

    `names` are of the lines that each chart has, where it has several.
    """
    rows = [legend_line(names, width)] if names else []
    each = min(MAX_HEIGHT, max(MIN_HEIGHT, (height - 1 - len(rows)) // max(1, len(charts))))
    for chart in charts:
        rows += _one(chart, width, each, start_s, end_s)
    first, last = f"{age(end_s - start_s)} before", "newest"
    gap = max(1, width - LABEL_WIDTH - 2 - len(first) - len(last))
    return [*rows, line(muted(" " * (LABEL_WIDTH + 1) + first + " " * gap + last))]


def _one(chart: Chart, width: int, height: int, start_s: float, end_s: float) -> list[Line]:
    values = [y for points in chart.lines for _, y in points if y is not None and math.isfinite(y)]
    heading = line(muted("─ "), strong(f"{chart.title} "), chart.told, muted(" " + "─" * width))
    rows = [crop(heading, width)]
    if not values:
        return [*rows, line(muted(f"{UNKNOWN:>{LABEL_WIDTH}}  not measured in this time"))]
    low, high = (0.0, max(chart.top, *values)) if chart.top else (min(values), max(values))
    if low == high:
        low, high = low - (abs(low) * 0.1 or 1.0), high + (abs(high) * 0.1 or 1.0)
    body = height - 1
    drawn = _drawn(chart, max(1, width - LABEL_WIDTH - 2), body, (start_s, end_s), (low, high))
    for index, cells in enumerate(drawn):
        label = number(high, 3) if index == 0 else number(low, 3) if index == body - 1 else ""
        label += chart.unit if label else ""
        rows.append(line(muted(f"{fit(label, LABEL_WIDTH, 'right')} "), *cells))
    return rows


def _drawn(
    chart: Chart, width: int, height: int, x: tuple[float, float], y: tuple[float, float]
) -> list[Line]:
    """The lines above each other, each in its stroke."""
    layers = [
        (stroke, plot([points], width, height, x, y))
        for points, stroke in zip(chart.lines, STROKES, strict=False)
    ]
    rows = []
    for row in range(height):
        cells = [_cell([(stroke, rows_[row][at]) for stroke, rows_ in layers], at) for at in range(width)]
        runs = groupby(cells, key=lambda cell: cell.tone)
        rows.append(tuple(Span("".join(cell.text for cell in run), tone) for tone, run in runs))
    return rows


def _cell(layers: Sequence[tuple[Stroke, str]], at: int) -> Span:
    bits, tone = 0, None
    for stroke, cell in layers:
        if cell == _BLANK:
            continue
        mine = (ord(cell) - _EMPTY) & stroke.kept(at)
        tone = stroke.tone if mine and tone is None else tone
        bits |= mine
    return Span(chr(_EMPTY + bits), tone or "")
