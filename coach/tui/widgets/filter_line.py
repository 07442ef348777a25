"""The line in which a filter is typed: shown on `/`, gone on Enter or Esc."""

from __future__ import annotations

from collections.abc import Iterable

from textual.widgets import Input

from coach.tui.widgets.keyed_table import KeyedTable


class FilterLine(Input):
    """Filters the table it was opened for while one types."""

    def __init__(self) -> None:
        super().__init__(placeholder="filter: every word must occur", id="filter", compact=True)
        self.cursor_blink = False
        self.can_focus = False
        self._table: KeyedTable | None = None

    def edit(self, table: KeyedTable) -> None:
        self._table = table
        self.value = table.query_text
        self.display = True
        self.can_focus = True
        self.focus()

    def apply(self) -> None:
        if self._table is not None:
            self._table.set_query(self.value)

    def clear_filter(self, tables: Iterable[KeyedTable]) -> bool:
        """Drop the filter of these tables. Whether there was one, or one was being typed."""
        was_open = self.display
        filtered = [table for table in tables if table.query_text]
        for table in filtered:
            table.set_query("")
        self.value = ""
        self._close()
        return was_open or bool(filtered)

    async def action_submit(self) -> None:
        self._close()

    def _close(self) -> None:
        self.display = False
        self.can_focus = False
        if self._table is not None:
            self._table.focus()
            self._table = None
