"""Charts in braille dots, several above one axis, with events marked below them.

This module sets the dots itself, in integers: a page is drawn each second, and a library's canvas took three
quarters of the time. If there is no room for all charts, the last ones become strips of one line each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, groupby

from coach.render.text import UNKNOWN, Line, Span, Tone, clip, crop, fit, line, muted, printable, strong
from coach.tui.render.axis import Scale, XAxis, scale_of, tick_label

Point = tuple[float, float | None]

LABEL_WIDTH = 7
MIN_HEIGHT = 4
MAX_HEIGHT = 12
"""The most lines of one chart among several, with its title."""
NAME_WIDTH = 11
"""The width of a strip's name, which stands before its value."""
_NARROW = 60
_BLOCKS = "▁▂▃▄▅▆▇█"

_EMPTY, BLANK_CELL = 0x2800, "\u2800"
_LEFT, _RIGHT = 0x47, 0xB8
"""Braille: the code of the empty cell, and the bits of a cell's left and right column."""
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of a cell's dots from the top, for its left and its right column."""
_MIDDLE = 0x12
"""The dots of a flat line."""


@dataclass(frozen=True, slots=True)
class Stroke:
    """The dash pattern of a line: which of eight dots along it are set. Lines differ also in black and
    white."""

    dots: str
    tone: Tone

    @property
    def mark(self) -> Span:
        """A piece of the line, for a legend."""
        cells = [self.kept(at) & _MIDDLE for at in range(len(self.dots) // 2)]
        return Span("".join(chr(_EMPTY + bits) for bits in cells), self.tone)

    def kept(self, at: int) -> int:
        """The bits of a column's cell that may be set."""
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
    """Some lines on one scale. `top` is the end of a scale that starts at 0; without it, the scale fits the
    values."""

    title: str
    told: str
    """The newest values, in words."""
    lines: tuple[Sequence[Point], ...]
    """Each line has the next one of STROKES. If several lines meet in a cell, it has the tone of the first
    one."""
    top: float | None = None
    unit: str = ""
    is_log: bool = False
    from_zero: bool = False
    short: str = ""
    """Its name as a strip; empty if the title is short enough."""
    now: str = ""
    """The newest value, as shown in a strip."""
    trouble: str = ""
    """A problem of the values, for its title."""
    has_own_legend: bool = False
    """True if `told` names its lines, so that the legend above the charts is not about it."""
    letters: str = ""
    """A letter for each line, drawn on it; empty if only strokes distinguish the lines."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An event at one place on the axis."""

    at: float
    sign: str
    """One character, the same as in the legend."""
    name: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the axis that a finding is about."""

    start: float
    end: float
    name: str
    sign: str = "▲"
    tone: Tone = "warning"


@dataclass(frozen=True, slots=True)
class Notes:
    """The events below charts, and the shaded parts in them."""

    marks: Sequence[Mark] = field(default=())
    stretches: Sequence[Stretch] = field(default=())

    @property
    def num_lines(self) -> int:
        return 2 * bool(self.marks) + len(self.stretches)


NO_NOTES = Notes()


def newest_value(points: Sequence[Point]) -> float | None:
    """The newest finite value; None without one."""
    return next((y for _, y in reversed(points) if y is not None and math.isfinite(y)), None)


def led_by(charts: Sequence[Chart], index: int) -> list[Chart]:
    """The charts with one of them first. `index` counts on after the last chart."""
    first = index % len(charts)
    return [charts[first], *charts[:first], *charts[first + 1 :]]


def plot(
    lines: Sequence[Sequence[Point]], width: int, height: int, x: tuple[float, float], y: tuple[float, float]
) -> list[str]:
    """Draw points joined by straight lines; `x` and `y` are the ends of the scales. A value that is not
    finite breaks its line."""
    if width <= 0 or height <= 0:
        return []
    last_column, last_row = width * 2 - 1, height * 4 - 1
    per_x, per_y = last_column / ((x[1] - x[0]) or 1.0), last_row / ((y[1] - y[0]) or 1.0)
    dots: set[tuple[int, int]] = set()
    for points in lines:
        previous: tuple[int, int] | None = None
        for at, value in points:
            if value is None or not math.isfinite(value):
                previous = None
                continue
            column = min(max(round((at - x[0]) * per_x), 0), last_column)
            row = min(max(round((y[1] - value) * per_y), 0), last_row)
            if previous is None:
                dots.add((column, row))
            elif previous != (column, row):
                _join(dots, *previous, column, row)
            previous = column, row
    cells = [[_EMPTY] * width for _ in range(height)]
    for column, row in dots:
        cells[row >> 2][column >> 1] |= _BITS[column & 1][row & 3]
    return ["".join(map(chr, row)) for row in cells]


def _join(dots: set[tuple[int, int]], column: int, row: int, to_column: int, to_row: int) -> None:
    """Set the dots of a straight line."""
    columns, rows = to_column - column, to_row - row
    most = max(abs(columns), abs(rows))
    for step in range(most + 1):
        dots.add((column + round(columns * step / most), row + round(rows * step / most)))


def legend_line(names: Sequence[str], width: int, letters: str = "") -> Line:
    """The legend of the strokes."""
    parts: list[Span | str] = []
    for at, (name, stroke) in enumerate(zip(names, cycle(STROKES), strict=False)):
        parts += [*([strong(f"{letters[at]} ")] if letters else []), stroke.mark, f" {name}   "]
    return clip(line(" " * (LABEL_WIDTH + 1), *parts), width)


def chart_lines(
    charts: Sequence[Chart],
    width: int,
    height: int,
    axis: XAxis,
    names: Sequence[str] = (),
    notes: Notes = NO_NOTES,
    next_key: str = "",
) -> list[Line]:
    """The charts one above the other in `width` × `height` cells; below them the events and the axis. The
    first chart is always drawn, the others as far as there is room; the key `next_key` moves the next chart
    up.

    `names` are the names of the lines in each chart, if it has several.
    """
    places, has_names = _arranged(charts, height - 1 - notes.num_lines, names, notes, next_key)
    rows = [legend_line(names, width, charts[0].letters)] if has_names else []
    has_strips = any(num_lines == 1 for _, num_lines, _ in places)
    gutter = NAME_WIDTH + LABEL_WIDTH + 1 if has_strips and width >= _NARROW else LABEL_WIDTH + 1
    frame = Frame(axis, max(1, width - gutter - 2), gutter, _shaded(axis, width - gutter - 2, notes))
    for chart, num_lines, has_heading in places:
        rows += (
            [_strip(chart, frame, width)]
            if num_lines == 1
            else _one(chart, frame, width, num_lines, has_heading=has_heading)
        )
    hidden = [chart.short or chart.title for chart in charts[len(places) :]]
    more = f"{next_key}: {', '.join(hidden)}" if hidden and next_key else ""
    return [*rows, *_note_lines(frame, notes, width), _axis_line(frame, width), *_legend(notes, width, more)]


_Places = list[tuple[Chart, int, bool]]


def _arranged(
    charts: Sequence[Chart], room: int, names: Sequence[str], notes: Notes, next_key: str
) -> tuple[_Places, bool]:
    """The places of the charts, and True if the legend of line names stands above them: only a large chart
    shows more than one line."""
    if next_key and not notes.marks and len(_places(charts, room)) < len(charts):
        room -= 1  # the legend then names the charts without room
    if names:
        places = _places(charts, room - 1)
        if any(
            len(chart.lines) > 1 and num_lines > 1 and not chart.has_own_legend
            for chart, num_lines, _ in places
        ):
            return places, True
    return _places(charts, room), False


def _places(charts: Sequence[Chart], room: int) -> _Places:
    """The number of lines of each chart, and True if its first line is a heading. With too little room, the
    last charts become strips of one line, then they are left out."""
    if not charts:
        return []
    first, *others = charts
    if room >= MIN_HEIGHT * (len(charts) + 1):
        each = min(MAX_HEIGHT, room // (len(charts) + 1))
        extra = min(MAX_HEIGHT - each, room - each * len(charts))
        return [(first, each + extra, True), *((chart, each, True) for chart in others)]
    has_heading = bool(first.trouble) or room >= MIN_HEIGHT + 3
    least = MIN_HEIGHT - 1 + has_heading
    others = others[: max(0, room - least)]
    spare = max(0, room - least - len(others))
    num_large = min(len(others), max(0, spare - 2) // (MIN_HEIGHT - 1))
    spare -= num_large * (MIN_HEIGHT - 1)
    return [
        (first, least + spare, has_heading),
        *((chart, MIN_HEIGHT if index < num_large else 1, True) for index, chart in enumerate(others)),
    ]


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of charts above each other: their axis, their cells, and the space at the left."""

    axis: XAxis
    width: int
    gutter: int
    shaded: frozenset[int] = frozenset()
    """The shaded columns."""

    def edge(self, text: str, sign: str, name: str = "") -> Line:
        """The text left of the cells: a name, a label of the scale, and the line of the scale."""
        if not name or self.gutter <= LABEL_WIDTH + 1:
            return (muted(f"{fit(text, self.gutter, 'right')}{sign}"),)
        return (
            Span(fit(f" {name}", NAME_WIDTH)),
            muted(f"{fit(text, self.gutter - NAME_WIDTH, 'right')}{sign}"),
        )


def _shaded(axis: XAxis, width: int, notes: Notes) -> frozenset[int]:
    """The columns of all stretches; none where that would be every column."""
    found = [_columns(axis, width, each.start, each.end) for each in notes.stretches]
    return frozenset(column for columns in found if len(columns) < width for column in columns)


def _columns(axis: XAxis, width: int, start: float, end: float) -> range:
    """The cells between two places, without those outside the axis."""
    first = axis.column(max(start, axis.start), width)
    last = axis.column(min(end, axis.end), width)
    return range(0) if first is None or last is None else range(first, last + 1)


def _one(chart: Chart, frame: Frame, width: int, height: int, *, has_heading: bool) -> list[Line]:
    trouble = (Span(f" ✖ {chart.trouble}", "critical"),) if chart.trouble else ()
    heading = line(muted("─ "), strong(f"{chart.title} "), chart.told, *trouble, muted(" " + "─" * width))
    rows = [crop(heading, width)] if has_heading else []
    values = [y for points in chart.lines for _, y in points]
    scale = scale_of(values, chart.top, is_log=chart.is_log, from_zero=chart.from_zero)
    if scale is None:
        told = "no finite value" if any(y is not None for y in values) else "not measured in this time"
        name = muted(f" {told}") if has_heading else muted(f" {chart.short or chart.title} {told}")
        return [*rows, clip(line(*frame.edge(UNKNOWN, " "), name), width)]
    body = max(1, height - len(rows))
    labels = _labels(scale, body, chart.unit)
    names = {} if has_heading else {0: chart.short or chart.title, 1: chart.now}
    for index, cells in enumerate(_drawn(chart, scale, frame, body)):
        label = labels.get(index)
        edge = frame.edge(label or "", "┤" if label else "│", names.get(index, ""))
        rows.append(line(*edge, *cells))
    return rows


def _labels(scale: Scale, height: int, unit: str) -> dict[int, str]:
    """The labels of a scale by line; at least two labels if there are two lines."""
    found: dict[int, str] = {}
    for value in scale.ticks(max(2, height // 2)):
        share = scale.share(value)
        if share is not None:
            found.setdefault(round((1 - share) * (height - 1)), tick_label(value, unit))
    for row, value in ((0, scale.high), (height - 1, scale.low)):
        is_near = any(abs(row - other) < 2 for other in found)
        if len(found) < 2 or not is_near:
            found.setdefault(row, tick_label(value, unit))
    return found


def _strip(chart: Chart, frame: Frame, width: int) -> Line:
    """A chart in one line: its name, its newest value, and blocks."""
    name = chart.short or chart.title
    values = [y for _, y in chart.lines[0]] if chart.lines else []
    scale = scale_of(values, chart.top, is_log=chart.is_log, from_zero=chart.from_zero)
    head = fit(name, frame.gutter) if frame.gutter <= LABEL_WIDTH + 1 else ""
    head = head or f"{fit(f' {name}', NAME_WIDTH)}{fit(chart.now, LABEL_WIDTH, 'right')} "
    if scale is None:
        return clip(line(head, muted("│ not measured in this time")), width)
    cells: list[Span] = []
    for column, value in enumerate(_by_column(chart.lines[0], frame)):
        share = scale.share(value)
        text = "·" if share is None else _BLOCKS[round(share * 7)]
        cells.append(Span(text, "shaded" if column in frame.shaded else "accent" if share else "muted"))
    return line(head, muted("│"), *_joined(cells))


def _by_column(points: Sequence[Point], frame: Frame) -> list[float | None]:
    """The mean of a line in each cell of the axis. Cells between two points have the value of the later
    point."""
    sums = [0.0] * frame.width
    counts = [0] * frame.width
    previous = -1
    for at, value in points:
        column = frame.axis.column(at, frame.width)
        if column is None:
            continue
        if value is None or not math.isfinite(value):
            previous = -1
            continue
        for place in range(previous + 1 if 0 <= previous < column else column, column + 1):
            sums[place] += value
            counts[place] += 1
        previous = column
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def _joined(cells: Iterable[Span]) -> Line:
    """Join neighbouring cells of one tone into one span."""
    runs = groupby(cells, key=lambda cell: cell.tone)
    return tuple(Span("".join(cell.text for cell in run), tone) for tone, run in runs)


def _drawn(chart: Chart, scale: Scale, frame: Frame, height: int) -> list[Line]:
    """The chart's lines drawn over each other, each in its stroke."""
    width, ends = frame.width, (frame.axis.start, frame.axis.end)
    layers = [
        (stroke, plot([[(at, scale.place(y)) for at, y in points]], width, height, ends, scale.ends))
        for points, stroke in zip(chart.lines, cycle(STROKES), strict=False)
    ]
    letters = _letters(chart, scale, frame, height)
    rows = []
    for row in range(height):
        cells = []
        for at in range(width):
            cell = letters.get((row, at)) or _cell([(stroke, drawn[row][at]) for stroke, drawn in layers], at)
            cells.append(Span(cell.text, "shaded") if at in frame.shaded else cell)
        rows.append(_joined(cells))
    return rows


def _letters(chart: Chart, scale: Scale, frame: Frame, height: int) -> dict[tuple[int, int], Span]:
    """The letters on the lines, by row and column. Each line has its own columns; if two letters meet, the
    first line's stays."""
    found: dict[tuple[int, int], Span] = {}
    every = max(6, frame.width // 6)
    for index, (points, letter) in enumerate(zip(chart.lines, chart.letters, strict=False)):
        shift = (index * every) // max(1, len(chart.letters)) + 1
        known = [
            (column, share)
            for at, y in points
            if (column := frame.axis.column(at, frame.width)) is not None
            and (share := scale.share(y)) is not None
        ]
        wanted = set(range(shift, frame.width, every))
        last = max((column for column, _ in known), default=None)
        for column, share in known:
            if column in wanted or column == last:
                wanted.discard(column)
                found.setdefault((round((1 - share) * (height - 1)), column), Span(letter, "strong"))
    return found


def _cell(layers: Sequence[tuple[Stroke, str]], at: int) -> Span:
    bits, tone = 0, None
    for stroke, cell in layers:
        if cell == BLANK_CELL:
            continue
        mine = (ord(cell) - _EMPTY) & stroke.kept(at)
        tone = stroke.tone if mine and tone is None else tone
        bits |= mine
    return Span(chr(_EMPTY + bits), tone or "")


def _axis_line(frame: Frame, width: int) -> Line:
    return clip(line(muted(" " * (frame.gutter + 1) + frame.axis.row(frame.width))), width)


def _note_lines(frame: Frame, notes: Notes, width: int) -> list[Line]:
    """One line for all events, and one for each stretch."""
    rows = []
    if notes.marks:
        cells = [Span(" ")] * frame.width
        for mark in notes.marks:
            column = frame.axis.column(mark.at, frame.width)
            if column is not None:
                cells[column] = Span(mark.sign, mark.tone)
        rows.append(line(*frame.edge("events ", " "), *_joined(cells)))
    for stretch in notes.stretches:
        columns = _columns(frame.axis, frame.width, stretch.start, stretch.end)
        text = stretch.sign + "▒" * (len(columns) - 1) if columns else ""
        name = f"{printable(stretch.name)} "
        rows.append(line(*frame.edge(name, " "), " " * columns.start, Span(text, stretch.tone)))
    return [clip(row, width) for row in rows]


def _legend(notes: Notes, width: int, more: str) -> list[Line]:
    """The meaning of each sign, once, and the names of the charts without room."""
    known = {mark.sign: mark for mark in notes.marks}
    parts = [
        part
        for mark in known.values()
        for part in (Span(f" {mark.sign}", mark.tone or "strong"), muted(f" {mark.name} "))
    ]
    if not parts and not more:
        return []
    return [clip(line(" ", *parts, muted(f" {more}")), width)]
