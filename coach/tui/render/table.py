"""Rows and columns of a keyed table, and the choice of the columns that fit a width.

Column widths depend only on the terminal's width, not on the data, so a new row never moves the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, Protocol, TypeVar, overload

from coach.render.text import Line, Span, Tone, fit

T = TypeVar("T")
_DIGITS = re.compile("([0-9]+)")


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Columns with the highest `priority` numbers are dropped first; `grow` is the column's share
    of the width left over.

    An extra column is shown only if the user chooses it.
    """

    name: str
    title: str
    width: int
    priority: int = 0
    align: Literal["left", "right"] = "left"
    grow: int = 0
    is_extra: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    tone: Tone = ""
    fill: Callable[[int], str] | None = None
    """Makes the text for a given width, for a bar or a curve that fills its column."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row. Its key keeps the cursor on it when rows move."""

    key: str
    cells: tuple[Cell, ...]
    """One per column of the whole table, shown or not."""
    search: str = ""
    """The text that a filter searches, in lower case."""


class Rows(Protocol):
    """Any number of rows; only those in sight are made."""

    @property
    def keys(self) -> Sequence[str]: ...

    def row(self, index: int) -> Row: ...


class ListRows:
    """Rows in a list, for small tables."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self.keys = [row.key for row in rows]

    def row(self, index: int) -> Row:
        return self._rows[index]


class LazyRows(Generic[T]):
    """Rows of values, each made on access."""

    def __init__(self, keys: Sequence[str], values: Sequence[T], render: Callable[[T], Row]) -> None:
        self.keys = keys
        self._values = values
        self._render = render

    def row(self, index: int) -> Row:
        return self._render(self._values[index])


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that are shown at one width, each with its index in a row's cells and its width."""

    columns: tuple[tuple[int, Column, int], ...]


GAP = 2
MARGIN = 1


def fit_columns(columns: Sequence[Column], width: int, chosen: Sequence[str] = ()) -> Layout:
    """Drop columns by priority until the rest fits, then let the growing ones share what is left.

    `chosen` are the columns that the user chose, in that order; the last of them are dropped first.
    """
    shown = [(index, column) for index, column in enumerate(columns) if not column.is_extra]
    if chosen:
        named = {column.name: (index, column) for index, column in enumerate(columns)}
        wanted = [named[name] for name in chosen if name in named]
        shown = [(index, replace(column, priority=rank)) for rank, (index, column) in enumerate(wanted)]

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


def header_line(layout: Layout, order: tuple[str, bool] | None = None) -> Line:
    """`order` is the column that sorts the rows, and True if the largest come first."""
    cells = []
    for _, column, width in layout.columns:
        is_sorted = order is not None and column.name in (order[0], f"short_{order[0]}")
        sign = "" if order is None or not is_sorted else "↓" if order[1] else "↑"
        title = column.title if len(column.title + sign) <= width else column.title[: width - len(sign)]
        cells.append(fit(title + sign, width, column.align))
    return (Span(" " * MARGIN + (" " * GAP).join(cells), "muted"),)


def row_line(row: Row, layout: Layout) -> Line:
    spans = [Span(" " * MARGIN)]
    for place, (index, column, width) in enumerate(layout.columns):
        if place:
            spans.append(Span(" " * GAP))
        cell = row.cells[index]
        text = cell.fill(width) if cell.fill is not None else cell.text
        spans.append(Span(fit(text, width, column.align), cell.tone))
    return tuple(spans)


class RowLines(Sequence[Line]):
    """The lines of rows in one layout. Each is made on access, then cached."""

    def __init__(self, rows: Rows, layout: Layout) -> None:
        self._rows = rows
        self._layout = layout
        self._made: dict[int, Line] = {}

    def __len__(self) -> int:
        return len(self._rows.keys)

    @overload
    def __getitem__(self, index: int) -> Line: ...

    @overload
    def __getitem__(self, index: slice) -> list[Line]: ...

    def __getitem__(self, index: int | slice) -> Line | list[Line]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        if index not in self._made:
            self._made[index] = row_line(self._rows.row(index), self._layout)
        return self._made[index]


def matching(rows: Rows, query: str) -> Rows:
    """The rows that contain every word of the query. It makes every row, so large tables filter their values
    before they become rows."""
    words = query.lower().split()
    if not words:
        return rows
    made = (rows.row(index) for index in range(len(rows.keys)))
    return ListRows([row for row in made if all(word in row.search for word in words)])


def searchable(*texts: str | None) -> str:
    return " ".join(text for text in texts if text).lower()


def natural(name: str) -> tuple[str | int, ...]:
    """The sort key that puts node2 before node10: text and numbers in turn."""
    return tuple([int(part[:18]) if at % 2 else part for at, part in enumerate(_DIGITS.split(name))])
