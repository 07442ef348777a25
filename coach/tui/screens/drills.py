"""The Drills screen: planted faults for practice, each described by a user's complaint. Enter opens the
plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.widget import Widget

from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.render.text import plural, printable
from coach.tui.bases.list import ListScreen
from coach.tui.context import Context
from coach.tui.messages import DrillsWanted, PlanOpened, ScreenOpened
from coach.tui.render.drills import DRILL_COLUMNS, drill_lines, drill_rows
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.lines import LinesView
from coach.workflows.teaching.drills import DrillEntry


class DrillsScreen(ListScreen, screen="drills"):
    """The drills above, the page of the drill under the cursor below."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._entries: Sequence[DrillEntry] | None = None

    def compose_body(self) -> Iterator[Widget]:
        yield KeyedTable(DRILL_COLUMNS, id="drills", classes="pane")
        yield LinesView(id="page", classes="pane")
        yield FilterLine()

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.post_message(DrillsWanted())  # drills may have been launched or answered meanwhile

    def set_drills(self, entries: Sequence[DrillEntry], problems: tuple[UserError, ...]) -> None:
        """Show the drills that were read."""
        self._entries = entries
        self.refresh_all()
        if problems:
            self.note(problems[0].message)

    @property
    def entry(self) -> DrillEntry | None:
        """The drill under the cursor."""
        key = self.table.cursor_key
        return next((each for each in self._entries or () if each.recipe.name == key), None)

    def show(self) -> None:
        entries = self._entries
        self.table.set_rows(
            drill_rows(entries or ()), "reading the drills…" if entries is None else "no drill"
        )
        solved = sum(each.answer is not None and each.answer.is_right for each in entries or ())
        self.table.set_title(f"{plural(len(entries or ()), 'drill')} · {solved} solved")
        self._show_page()

    def _show_page(self) -> None:
        entry, page = self.entry, self.pane("#page")
        if entry is not None:
            page.set_title(printable(entry.recipe.name))
            page.set_lines(drill_lines(entry, max(30, page.room.width or 60), self.context.label))

    def action_open(self) -> None:
        entry = self.entry
        if entry is None:
            self.note_no_row()
            return
        if entry.skipped is not None:
            self.note(entry.skipped)
            return
        self.post_message(PlanOpened(LaunchRequest(entry.recipe.name), entry.recipe.name))

    def action_answer(self) -> None:
        entry = self.entry
        if entry is None or entry.run is None:
            self.note(f"not launched yet: {self.context.label('open')} launches it")
        else:
            self.post_message(ScreenOpened("answer", entry.run.run_id))

    def on_keyed_table_moved(self) -> None:
        self.pane("#page").scroll_home(animate=False)
        self._show_page()
