"""A curve with its title and scale; bars and sparklines of characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from coach.render.text import Line, Span, crop, fit, line, muted, number, strong
from coach.tui.render.axis import scale_of
from coach.tui.render.chart import Point, plot

_BLOCKS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def curve_lines(
    title: str,
    points: Sequence[Point],
    width: int,
    height: int,
    unit: str = "",
    starts_at_zero: bool = False,
    counted_by: str = "step",
) -> list[Line]:
    """A curve in `width` × `height` cells, with the newest value in the title, and the range at the left
    edge. `counted_by`: the word for the numbers of the points."""
    known = [(x, y) for x, y in points if y is not None]
    scale = scale_of([y for _, y in known], from_zero=starts_at_zero)
    rows: list[Line] = [_heading(title, known, width, unit, counted_by)]
    if scale is None:
        rows.append(line(muted("   no value yet" if not known else "   no finite value")))
        return rows + [() for _ in range(height - 2)]
    low, high = scale.ends
    label_width = max(len(number(low)), len(number(high)), 5)
    has_axis = height >= 6
    body = height - 1 - has_axis
    steps = points[0][0], points[-1][0]
    drawable = [(x, scale.place(y)) for x, y in points]
    drawn = plot([drawable], max(1, width - label_width - 3), max(1, body), steps, (low, high))
    for index, cells in enumerate(drawn):
        label = number(high) if index == 0 else number(low) if index == len(drawn) - 1 else ""
        rows.append(line(muted(f" {fit(label, label_width, 'right')} "), Span(cells, "accent")))
    if not has_axis:
        return rows
    first, last = f"{counted_by} {points[0][0]:.0f}", f"{points[-1][0]:.0f}"
    gap = max(1, width - label_width - 3 - len(first) - len(last))
    rows.append(line(muted(" " * (label_width + 2) + first + " " * gap + last)))
    return rows[:height]


def _heading(
    title: str, known: Sequence[tuple[float, float]], width: int, unit: str, counted_by: str
) -> Line:
    """The title with the newest value, and the step from which values are not finite. If the newest one is
    finite again: the last step that was not."""
    newest = known[-1][1] if known else None
    is_broken = newest is not None and not math.isfinite(newest)
    heading = [muted("─ "), strong(f"{title} "), Span(number(newest), "critical" if is_broken else "")]
    if unit and newest is not None:
        heading.append(muted(f" {unit}"))
    lost = [x for x, y in known if not math.isfinite(y)]
    if is_broken:
        first, _ = list(takewhile(lambda point: not math.isfinite(point[1]), reversed(known)))[-1]
        heading.append(Span(f"  ✖ not finite from {counted_by} {first:.0f}", "critical"))
    elif lost:
        heading.append(Span(f"  ▲ not finite at {counted_by} {lost[-1]:.0f}", "warning"))
    heading.append(muted(" " + "─" * width))
    return crop(tuple(heading), width)


def bar(share: float | None, width: int) -> str:
    """A horizontal bar of a share between 0 and 1, filled to an eighth of a cell; dots if it is unknown."""
    if share is None or not math.isfinite(share):
        return "·" * width
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return (("█" * full) + _EIGHTHS[rest]).ljust(width, "░")[:width]


def sparkline(values: Sequence[float | None], width: int, low: float, high: float) -> str:
    """The newest values as blocks between `low` and `high`; unknown values are gaps."""
    newest = list(values)[-width:] if width > 0 else []
    span = (high - low) or 1.0
    cells = []
    for value in newest:
        if value is None or not math.isfinite(value):
            cells.append("·")
        else:
            cells.append(_BLOCKS[1 + round(min(max((value - low) / span, 0.0), 1.0) * 7)])
    return "".join(cells).rjust(width)
