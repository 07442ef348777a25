"""The New Launch screen: trainings of the project, earlier commands, files, recipes. Enter opens the plan of
the row under the cursor."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.render.text import plural
from coach.tui.bases.list import ListScreen
from coach.tui.context import Context
from coach.tui.messages import LaunchableOpened, LaunchablesWanted
from coach.tui.render.new_launch import LAUNCH_COLUMNS, launch_key, launch_rows, place_lines, shown_columns
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.lines import LinesView
from coach.workflows.launching.launchables import Launchables


class NewLaunchScreen(ListScreen, screen="new_launch"):
    """The table of launches. It is read each time that the screen comes to the top, because a launch from
    here becomes an earlier command."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._found: Launchables | None = None

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="told", can_focus=False)
        yield KeyedTable(LAUNCH_COLUMNS, id="launchables", classes="pane")
        yield FilterLine()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.post_message(LaunchablesWanted())

    def set_found(self, found: Launchables) -> None:
        self._found = found
        self.refresh_all()

    def show(self) -> None:
        found = self._found
        told = place_lines(found, self.app.size.width)
        self.pane("#told").fit_lines(told)
        rows = found.rows if found is not None else ()
        self.table.lay_out(shown_columns(rows), None)
        self.table.set_rows(
            launch_rows(rows, self.context.now_s), "no program matches" if rows else "nothing found yet"
        )
        self.table.set_title(plural(len(rows), "program") + self.filter_words)

    def ask_again(self) -> bool:
        self.post_message(LaunchablesWanted())
        return False

    def action_open(self) -> None:
        rows = self._found.rows if self._found is not None else ()
        row = next((each for each in rows if launch_key(each) == self.table.cursor_key), None)
        if row is None:
            self.note_no_row()
        else:
            self.post_message(LaunchableOpened(row))
