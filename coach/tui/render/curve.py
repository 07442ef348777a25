"""Curves and bars of characters: two by four braille dots to a cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from coach.tui.render.text import Line, Span, crop, fit, line, muted, number, strong

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # [row][column] of U+2800
_BLOCKS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")

Point = tuple[float, float | None]


def braille(points: Sequence[Point], width: int, height: int, low: float, high: float) -> list[str]:
    """Points joined by straight lines, drawn from `low` to `high`. A value that is not finite breaks the line."""
    grid = [[0] * width for _ in range(height)]
    finite = [(x, y) for x, y in points if y is not None and math.isfinite(y)]
    if not finite or width <= 0 or height <= 0:
        return ["⠀" * width for _ in range(height)]
    first, last = points[0][0], points[-1][0]
    span_x = (last - first) or 1.0
    span_y = (high - low) or 1.0

    def dot(x: float, y: float) -> tuple[int, int]:
        column = round((x - first) / span_x * (width * 2 - 1))
        row = round((1 - (y - low) / span_y) * (height * 4 - 1))
        return min(max(column, 0), width * 2 - 1), min(max(row, 0), height * 4 - 1)

    def put(column: int, row: int) -> None:
        grid[row // 4][column // 2] |= _DOTS[row % 4][column % 2]

    previous: tuple[int, int] | None = None
    for x, y in points:
        if y is None or not math.isfinite(y):
            previous = None
            continue
        here = dot(x, y)
        if previous is None:
            put(*here)
        else:
            _join(previous, here, put)
        previous = here
    return ["".join(chr(0x2800 + cell) for cell in row) for row in grid]


def _join(start: tuple[int, int], end: tuple[int, int], put: Callable[[int, int], None]) -> None:
    num_dots = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    for index in range(num_dots + 1):
        part = index / num_dots
        put(round(start[0] + (end[0] - start[0]) * part), round(start[1] + (end[1] - start[1]) * part))


def curve_lines(
    title: str,
    points: Sequence[Point],
    width: int,
    height: int,
    unit: str = "",
    starts_at_zero: bool = False,
) -> list[Line]:
    """A titled curve in `width` × `height` cells: the newest value in the title, the range at the left edge."""
    values = [y for _, y in points if y is not None]
    finite = [y for y in values if math.isfinite(y)]
    newest = values[-1] if values else None
    is_broken = newest is not None and not math.isfinite(newest)
    heading = [muted("─ "), strong(f"{title} "), Span(number(newest), "critical" if is_broken else "")]
    if unit and newest is not None:
        heading.append(muted(f" {unit}"))
    lost = next((x for x, y in points if y is not None and not math.isfinite(y)), None)
    if lost is not None:
        heading.append(Span(f"  ✖ not finite from step {lost:.0f}", "critical"))
    heading.append(muted(" " + "─" * width))
    rows: list[Line] = [crop(tuple(heading), width)]
    if not finite:
        rows.append(line(muted("   no value yet" if not values else "   no finite value")))
        return rows + [() for _ in range(height - 2)]
    low, high = min(finite), max(finite)
    if starts_at_zero:
        low = min(0.0, low)
    if low == high:
        low, high = low - (abs(low) * 0.1 or 1.0), high + (abs(high) * 0.1 or 1.0)
    label_width = max(len(number(low)), len(number(high)), 5)
    has_axis = height >= 6
    body = height - 1 - has_axis
    drawn = braille(points, max(1, width - label_width - 3), max(1, body), low, high)
    for index, cells in enumerate(drawn):
        label = number(high) if index == 0 else number(low) if index == len(drawn) - 1 else ""
        rows.append(line(muted(f" {fit(label, label_width, 'right')} "), Span(cells, "accent")))
    if not has_axis:
        return rows
    first, last = f"step {points[0][0]:.0f}", f"{points[-1][0]:.0f}"
    gap = max(1, width - label_width - 3 - len(first) - len(last))
    rows.append(line(muted(" " * (label_width + 2) + first + " " * gap + last)))
    return rows[:height]


def bar(share: float | None, width: int) -> str:
    """A horizontal bar of a share between 0 and 1, filled to an eighth of a cell; dots where nothing was measured."""
    if share is None or not math.isfinite(share):
        return "·" * width
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return (("█" * full) + _EIGHTHS[rest]).ljust(width, "░")[:width]


def sparkline(values: Sequence[float | None], width: int, low: float, high: float) -> str:
    """The newest values as blocks between `low` and `high`; a gap where nothing was measured."""
    newest = list(values)[-width:] if width > 0 else []
    span = (high - low) or 1.0
    cells = []
    for value in newest:
        if value is None or not math.isfinite(value):
            cells.append("·")
        else:
            cells.append(_BLOCKS[1 + round(min(max((value - low) / span, 0.0), 1.0) * 7)])
    return "".join(cells).rjust(width)
