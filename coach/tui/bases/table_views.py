"""The base of screens with tables that the user filters, sorts, and limits to some columns, by the words of
the command line.

A view belongs to the user, not to the screen: it is saved for the next start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.messages import ViewsChanged
from coach.tui.table_view import TableView
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.keyed_table import KeyedTable

_FILTER = "filter: text, state:pending, gpu:>0, user:me, -word; all: coach jobs --help"
"""Its words fit 80 columns."""


class TableViewScreen(CoachScreen):
    """A screen with tables that have views."""

    def __init__(
        self, context: Context, crumbs: tuple[str, ...], views: Mapping[str, TableView[Any]]
    ) -> None:
        """`views`: table id → view. A key acts on the table with the focus, else on the first one."""
        super().__init__(context, crumbs)
        self.views = views
        problems, context.views_problem = [context.views_problem], None
        problems += [
            view.restore(context.views[name]) for name, view in views.items() if name in context.views
        ]
        self._problem = next(filter(None, problems), None)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        if self._problem is not None:
            self.call_after_refresh(self.note, self._problem)
            self._problem = None

    def _at_hand(self) -> tuple[KeyedTable, TableView[Any]]:
        tables = {name: self.query_one(f"#{name}", KeyedTable) for name in self.views}
        name = next((name for name, table in tables.items() if table.has_focus), next(iter(tables)))
        return tables[name], self.views[name]

    def action_filter(self) -> None:
        table, view = self._at_hand()
        self.query_one(FilterLine).ask(
            table, view.view.filter, lambda text: self._say(view.filter(text)), _FILTER
        )

    def action_columns(self) -> None:
        table, view = self._at_hand()
        choices = f"columns, from: {' '.join(view.choices())}"
        value = view.view.columns or ",".join(name for name in table.shown_columns if name in view.choices())
        self.query_one(FilterLine).ask(
            table, value, lambda text: self._say(view.choose_columns(text)), choices, view.view.columns
        )

    def action_sort(self) -> None:
        table, view = self._at_hand()
        view.sort_by_next(table.shown_columns)
        table.go_to_top_of_next()
        self._changed()
        self.note(view.sort_words(table.shown_columns))

    def action_reverse(self) -> None:
        table, view = self._at_hand()
        if not view.view.sort:
            self.note(f"nothing to reverse: {self.context.label('sort')} sorts by a column")
            return
        view.reverse()
        table.go_to_top_of_next()
        self._changed()

    def _say(self, problem: str | None) -> None:
        self.note(problem or "")

    def _changed(self) -> None:
        self.context.views.update({name: view.view for name, view in self.views.items()})
        self.post_message(ViewsChanged())
        self.refresh_all()

    def on_input_changed(self, event: FilterLine.Changed) -> None:
        self.query_one(FilterLine).apply()
        self.refresh_all()

    def on_filter_line_left(self) -> None:
        self._changed()

    def clear_filters(self) -> bool:
        """Drop the filters, or close the line being typed. Returns True if there was either."""
        line = self.query_one(FilterLine)
        filtered = [view for view in self.views.values() if view.view.filter]
        if line.display:
            line.give_up()
        elif filtered:
            for view in filtered:
                view.filter("")
        else:
            return False
        self._changed()
        return True
