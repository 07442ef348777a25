"""The rows of the New Launch screen: programs, commands and recipes, by their source."""

from __future__ import annotations

from collections.abc import Sequence

from coach.render.text import Line, Span, age, clip, line, muted, printable
from coach.tui.render.table import Cell, Column, Row, searchable
from coach.workflows.launching.launchables import Launchable, Launchables

LAUNCH_COLUMNS = (
    Column("origin", "FROM", 6),
    Column("name", "PROGRAM", 26, grow=1),
    Column("about", "ABOUT", 24, grow=8, priority=2),
    Column("launched", "LAUNCHED", 10, align="right", priority=1),
)


_WITHOUT_TIMES = ("origin", "name", "about")


def shown_columns(rows: Sequence[Launchable]) -> Sequence[str]:
    """The columns. If nothing was launched before, the column of launch times is left out and the titles get
    its room."""
    return () if any(row.launched_time_s is not None for row in rows) else _WITHOUT_TIMES


def launch_key(row: Launchable) -> str:
    """The key of a row, which keeps the cursor in place."""
    return f"{row.origin.value} {row.request.recipe} {row.name} {row.about}"


def launch_rows(rows: Sequence[Launchable], now_s: float) -> list[Row]:
    return [_row(each, now_s) for each in rows]


def _row(each: Launchable, now_s: float) -> Row:
    name, about = printable(each.name), printable(each.about)
    ago = "" if each.launched_time_s is None else f"{age(now_s - each.launched_time_s)} ago"
    cells = (Cell(each.origin.value, "muted"), Cell(name), Cell(about, "muted"), Cell(ago, "muted"))
    return Row(launch_key(each), cells, searchable(each.origin.value, name, about))


def place_lines(found: Launchables | None, width: int) -> list[Line]:
    """The directory of the files and commands, and the number of entries left out."""
    if found is None:
        return [line(muted(" looking for scripts and earlier commands…"))]
    rows = [line(muted(" from  "), printable(found.directory))]
    rows += [line(Span(f" ▲ {printable(note)}", "warning")) for note in found.notes]
    return [clip(row, width) for row in rows]
