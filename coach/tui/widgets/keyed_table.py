"""A table whose rows have keys. New rows are compared with the old ones by key, so that cursor and scroll
position stay.

Only the rows in sight are made and compared, so a queue of tens of thousands of jobs costs as much as one
screen of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from coach.render.text import Line, Span, line, muted, pad
from coach.tui.render.table import (
    Cell,
    Column,
    Layout,
    ListRows,
    Row,
    RowLines,
    Rows,
    fit_columns,
    header_line,
    matching,
)
from coach.tui.theme import paint_of
from coach.tui.widgets.lines import LinesView

MARK = "●"


class KeyedTable(LinesView):
    """Fixed columns, one cursor, an optional filter. Only changed rows in sight are painted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("home,g", "move_to(0)", "First", show=False),
        Binding("end,G", "move_to(-1)", "Last", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
    ]

    class Opened(Message):
        """A row was clicked while the cursor was on it."""

    class Moved(Message):
        """The cursor is on another row."""

    def __init__(
        self, columns: Sequence[Column], *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._columns = columns
        self._chosen: Sequence[str] = ()
        self._order: tuple[str, bool] | None = None
        self._layout: Layout = fit_columns(columns, 80)
        self._all_rows: Rows = ListRows(())
        self._rows: Rows = self._all_rows
        self._empty = ""
        self._query = ""
        self._cursor = 0
        self._cursor_key: str | None = None
        self._goes_to_top = False
        """True if the cursor goes to the first of the next rows."""
        self._marks: set[str] = set()

    @property
    def num_rows(self) -> int:
        """The number of rows that match the filter."""
        return len(self._rows.keys)

    @property
    def keys(self) -> Sequence[str]:
        """Keys of the rows that match the filter."""
        return self._rows.keys

    @property
    def cursor_key(self) -> str | None:
        """Key of the row under the cursor; None in an empty table."""
        return self._rows.keys[self._cursor] if self.num_rows else None

    @property
    def cursor_cells(self) -> list[tuple[Column, Cell]]:
        """The cells of the row under the cursor, with their columns; empty in an empty table."""
        if not self.num_rows:
            return []
        return list(zip(self._columns, self._rows.row(self._cursor).cells, strict=True))

    @property
    def marked_keys(self) -> list[str]:
        """Keys of the marked rows that match the filter."""
        return [key for key in self._rows.keys if key in self._marks] if self._marks else []

    def toggle_mark(self) -> None:
        """Mark or unmark the row under the cursor, and move to the next."""
        if self._cursor_key is not None:
            self._marks ^= {self._cursor_key}
            self._repaint(self._cursor, 1)
            self.action_move(1)

    def clear_marks(self) -> bool:
        """Remove all marks. Returns False if there were none."""
        had_marks = bool(self._marks)
        self._marks.clear()
        self.refresh()
        return had_marks

    @property
    def query_text(self) -> str:
        return self._query

    def set_rows(self, rows: Rows | Sequence[Row], empty: str = "") -> None:
        """Show these rows. The cursor stays on its key; if that is gone, it stays at its place."""
        if rows is self._all_rows and empty == self._empty:
            return
        self._all_rows = ListRows(rows) if isinstance(rows, Sequence) else rows
        self._empty = empty
        self._update()

    def go_to_top_of_next(self) -> None:
        """Put the cursor on the first of the rows that come next: they have a new order."""
        self._goes_to_top = True

    def set_query(self, query: str) -> None:
        """Show only the rows that contain every word."""
        self._query = query
        self._update()

    @property
    def shown_columns(self) -> list[str]:
        return [column.name for _, column, _ in self._layout.columns]

    def lay_out(self, chosen: Sequence[str], order: tuple[str, bool] | None) -> None:
        """Show only these columns (empty: all but the extra ones), and a sign at the column that sorts the
        rows."""
        if (chosen, order) != (self._chosen, self._order):
            self._chosen, self._order = chosen, order
            self._fit(self.room.width)

    def _update(self) -> None:
        self._rows = matching(self._all_rows, self._query)
        if self._goes_to_top:
            self._goes_to_top, self._cursor, self._cursor_key = False, 0, None
        held = self._place_of_cursor()
        if held is not None and held != self._cursor:
            # Rows were added or removed above: scroll by their number, so that the cursor's row does not
            # move.
            self._cursor, moved = held, held - self._cursor
            self._paint_rows()
            if self.scroll_offset.y or moved > 0:
                self.scroll_to(y=max(0, self.scroll_offset.y + moved), animate=False)
            self._keep_in_sight()
            return
        self._cursor = min(self._cursor, max(0, self.num_rows - 1))
        self._cursor_key = self.cursor_key
        self._paint_rows()
        self._keep_in_sight()

    def _place_of_cursor(self) -> int | None:
        """New index of the row under the cursor; None if it is gone."""
        keys, key = self._rows.keys, self._cursor_key
        if key is None:
            return None
        if self._cursor < len(keys) and keys[self._cursor] == key:
            return self._cursor
        try:
            return keys.index(key)
        except ValueError:
            return None

    def _paint_rows(self) -> None:
        lines: Sequence[Line] = RowLines(self._rows, self._layout)
        if not lines and self._empty:
            lines = [line(muted(f"   {self._empty}"))]
        old, self._lines = self._lines, lines
        self._measure(0, len(lines) + 1)
        self._repaint_changes(old, lines, 1)

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size.width)

    def _fit(self, width: int) -> None:
        self._layout = fit_columns(self._columns, width, self._chosen)
        self._paint_rows()
        self._keep_in_sight()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.room.width
        if y == 0:
            return self.strip_of(pad(header_line(self._layout, self._order), width))
        index = self.scroll_offset.y + y - 1
        if index >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        row = pad(self._lines[index], width)
        if self._marks and index < self.num_rows and self._rows.keys[index] in self._marks:
            row = (Span(MARK, "accent"), *row[1:])  # in the margin
        if index == self._cursor and self.num_rows and self.has_focus:
            return self.strip_of(row, paint_of(self.app.theme).cursor)
        return self.strip_of(row)

    def on_focus(self) -> None:
        self._repaint(self._cursor, 1)

    def on_blur(self) -> None:
        self._repaint(self._cursor, 1)

    def action_move(self, by: int) -> None:
        self._move_to(self._cursor + by)

    def action_move_to(self, index: int) -> None:
        self._move_to(index if index >= 0 else self.num_rows - 1)

    def go_to(self, key: str) -> bool:
        """Put the cursor on the row with this key. Returns False if there is none."""
        has_row = key in self._rows.keys
        if has_row:
            self._move_to(self._rows.keys.index(key))
        return has_row

    def action_page(self, direction: int) -> None:
        self._move_to(self._cursor + direction * max(1, self.size.height - 2))

    def _move_to(self, index: int) -> None:
        index = min(max(index, 0), self.num_rows - 1)
        if index < 0 or index == self._cursor:
            return
        before, self._cursor = self._cursor, index
        self._cursor_key = self._rows.keys[index]
        self._repaint(before, 1)
        self._repaint(index, 1)
        self._keep_in_sight()
        self.post_message(self.Moved())

    def _keep_in_sight(self) -> None:
        height = self.room.height - 1
        if height <= 0:
            return
        top = self.scroll_offset.y
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False)
        elif self._cursor >= top + height:
            self.scroll_to(y=self._cursor - height + 1, animate=False)

    def on_click(self, event: events.Click) -> None:
        place = event.get_content_offset(self)
        if place is None or place.y == 0:
            return
        index = self.scroll_offset.y + place.y - 1
        if not 0 <= index < self.num_rows:
            return
        if index == self._cursor:
            self.post_message(self.Opened())
        else:
            self._move_to(index)
