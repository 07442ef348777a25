"""Rows and columns of a keyed table, and which columns a width has room for.

Widths are fixed per terminal width: nothing is measured from the data, so a new row never moves the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from coach.tui.render.text import Line, Span, Tone, fit

MAX_ROWS = 5000


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Columns with the highest `priority` numbers are dropped first; `grow` shares what is left over."""

    name: str
    title: str
    width: int
    priority: int = 0
    align: Literal["left", "right"] = "left"
    grow: int = 0


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its key is what the cursor holds on to."""

    key: str
    cells: tuple[Cell, ...]
    """One per column of the whole table, shown or not."""
    search: str = ""
    """What a filter is matched against, lower case."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that are shown at one width, each with its index in a row's cells and its width."""

    columns: tuple[tuple[int, Column, int], ...]


GAP = 2
MARGIN = 1


def fit_columns(columns: Sequence[Column], width: int) -> Layout:
    """Drop columns by priority until the rest fits, then let the growing ones share what is left."""
    shown = list(enumerate(columns))

    def needed() -> int:
        return MARGIN + sum(column.width for _, column in shown) + GAP * (len(shown) - 1)

    while len(shown) > 1 and needed() > width:
        shown.remove(max(shown, key=lambda item: (item[1].priority, item[0])))
    spare = max(0, width - needed() - MARGIN)
    shares = sum(column.grow for _, column in shown)
    result = []
    for index, column in shown:
        extra = spare * column.grow // shares if shares else 0
        result.append((index, column, column.width + extra))
    return Layout(tuple(result))


def header_line(layout: Layout) -> Line:
    cells = [fit(column.title, width, column.align) for _, column, width in layout.columns]
    return (Span(" " * MARGIN + (" " * GAP).join(cells), "muted"),)


def row_line(row: Row, layout: Layout) -> Line:
    spans = [Span(" " * MARGIN)]
    for place, (index, column, width) in enumerate(layout.columns):
        if place:
            spans.append(Span(" " * GAP))
        cell = row.cells[index]
        spans.append(Span(fit(cell.text, width, column.align), cell.tone))
    return tuple(spans)


def matching(rows: Sequence[Row], query: str) -> list[Row]:
    """Rows that contain every word of the query."""
    words = query.lower().split()
    return [row for row in rows if all(word in row.search for word in words)] if words else list(rows)


def limited(rows: Sequence[Row], limit: int = MAX_ROWS) -> tuple[Sequence[Row], str]:
    """The first rows, and a note about the others."""
    if len(rows) <= limit:
        return rows, ""
    return rows[:limit], f"…and {len(rows) - limit:,} more, / filters"


def searchable(*texts: str | None) -> str:
    return " ".join(text for text in texts if text).lower()


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """node2 before node10."""
    parts: list[tuple[int, int, str]] = []
    digits = ""
    for char in name + "\0":
        if char.isascii() and char.isdigit():
            digits += char
            continue
        if digits:
            parts.append((0, int(digits[:18]), ""))
            digits = ""
        parts.append((1, 0, char))
    return tuple(parts)
