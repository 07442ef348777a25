"""The input line for a filter or a choice of columns. Its key shows it; Enter or Esc hides it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from textual.message import Message
from textual.widget import Widget

from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.text_field import TextField

WORDS = "filter: every word must occur"


class FilterLine(TextField):
    """The input line. Each typed character takes effect at once."""

    class Left(Message):
        """The input line was closed, and its text stays in effect."""

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
        """Ask for a text about this table: `on_typed` gets the text after each change; `otherwise` is called
        on Esc."""
        self._table, self._on_typed, self._otherwise = table, on_typed, otherwise
        self.placeholder = placeholder
        self.value = value
        self.display = True
        self.can_focus = True
        # At once: `focus` would take effect only after keys that have already arrived.
        self.screen.set_focus(self)

    def apply(self) -> None:
        if self._table is not None:
            self._on_typed(self.value)

    def clear_filter(self, tables: Iterable[KeyedTable]) -> bool:
        """Drop the filters of these tables. Returns True if there was one, or if one was being typed."""
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
        """Hide the line, and return the focus."""
        table, self._table = self._table, None
        if table is not None:
            self.screen.set_focus(table)
        self.value = ""
        self.display = False
        self.can_focus = False
