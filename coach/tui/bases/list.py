"""The base of screens with one table and a filter line below: `/` asks for words, Enter opens a row, Esc
shows all rows again.

Screens with saved filters, columns and order have another base (table_views.py).
"""

from __future__ import annotations

from coach.model.judging.finding import Finding
from coach.render.text import printable
from coach.tui.bases.screen import CoachScreen
from coach.tui.fix_way import fix_way
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.keyed_table import KeyedTable


class ListScreen(CoachScreen):
    """A screen with a KeyedTable and a FilterLine."""

    @property
    def table(self) -> KeyedTable:
        return self.query_one(KeyedTable)

    def on_mount(self) -> None:
        self.table.focus()

    @property
    def filter_words(self) -> str:
        """The filter for the table's title; empty if all rows are shown."""
        query = self.table.query_text
        return f' · filter "{printable(query)}": {self.table.num_rows}' if query else ""

    def action_open(self) -> None:
        """Open the row under the cursor."""
        raise NotImplementedError

    def go_to_fix(self, target: str, marked: Finding) -> None:
        """Show the change that this finding suggests, else the first one of its job; if no finding of the job
        has one, the advice."""
        self.go(fix_way(self.context, target, marked=marked))

    def action_filter(self) -> None:
        self.query_one(FilterLine).edit(self.table)

    def on_keyed_table_opened(self) -> None:
        self.action_open()

    def on_input_changed(self, event: FilterLine.Changed) -> None:
        if isinstance(event.input, FilterLine):
            event.input.apply()
            self.refresh_all()

    def go_back(self) -> bool:
        was_filtered = self.query_one(FilterLine).clear_filter((self.table,))
        if was_filtered:
            self.refresh_all()
        return was_filtered
