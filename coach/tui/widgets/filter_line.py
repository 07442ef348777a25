"""The line in which a filter, or the choice of columns, is typed: shown on its key, gone on Enter or Esc."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from textual.message import Message
from textual.widget import Widget

from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.text_field import TextField

WORDS = "filter: every word must occur"


class FilterLine(TextField):
    """What is typed works while one types."""

    class Left(Message):
        """What was typed stays."""

    def __init__(self) -> None:
        super().__init__(id="filter")
        self.can_focus = False
        self._table: Widget | None = None
        self._on_typed: Callable[[str], object] = lambda text: None
        self._otherwise = ""

    def edit(self, table: KeyedTable) -> None:
        """Filter this table by words that must occur in a row."""
        self.ask(table, table.query_text, table.set_query, WORDS)

    def ask(
        self,
        table: Widget,
        value: str,
        on_typed: Callable[[str], object],
        placeholder: str,
        otherwise: str = "",
    ) -> None:
        """Tell `on_typed` what is typed about this table; `otherwise`, when it is given up."""
        self._table, self._on_typed, self._otherwise = table, on_typed, otherwise
        self.placeholder = placeholder
        self.value = value
        self.display = True
        self.can_focus = True
        self.screen.set_focus(self)  # now: `focus` would come after the keys that are here already

    def apply(self) -> None:
        if self._table is not None:
            self._on_typed(self.value)

    def clear_filter(self, tables: Iterable[KeyedTable]) -> bool:
        """Drop the filter of these tables. Whether there was one, or one was being typed."""
        was_open = self.display
        filtered = [table for table in tables if table.query_text]
        for table in filtered:
            table.set_query("")
        self.close()
        return was_open or bool(filtered)

    async def action_submit(self) -> None:
        self.apply()
        self.close()
        self.post_message(self.Left())

    def give_up(self) -> None:
        self._on_typed(self._otherwise)
        self.close()

    def close(self) -> None:
        """Go away, with the focus back where it was."""
        table, self._table = self._table, None
        if table is not None:
            self.screen.set_focus(table)
        self.value = ""
        self.display = False
        self.can_focus = False
