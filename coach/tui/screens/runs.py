"""The Runs screen: all the user's runs, newest first, with their findings."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.render.text import plural
from coach.tui.bases.list import ListScreen
from coach.tui.context import Context
from coach.tui.job_choice import Chosen, JobChoice, JobKeys, choose_run
from coach.tui.messages import ScreenOpened
from coach.tui.render.overlay import MAX_RUNS
from coach.tui.render.runs import RUN_COLUMNS, run_rows
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.keyed_table import KeyedTable


class RunsScreen(JobKeys, ListScreen, screen="runs"):
    """All runs under the runs root."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.job_choice = JobChoice(self, self._chosen)

    def compose_body(self) -> Iterator[Widget]:
        yield KeyedTable(RUN_COLUMNS, id="runs", classes="pane")
        yield FilterLine()

    def show(self) -> None:
        context, snapshot = self.context, self.context.snapshot
        rows = run_rows(
            snapshot.runs,
            context.jobs_by_id,
            snapshot.targets,
            context.diagnoses,
            context.rates,
            context.marked,
            context.now_s,
        )
        self.table.set_rows(rows, f"no run yet; {context.label('new_launch')} launches one")
        title = plural(len(snapshot.runs), "run") + self.filter_words
        if context.marked:
            title += f" · {len(context.marked)} marked, {context.label('compare')} compares 2 to {MAX_RUNS}"
        self.table.set_title(title)

    def action_open(self) -> None:
        if self.table.cursor_key is None:
            self.note_no_row()
        else:
            self.post_message(ScreenOpened("job", self.table.cursor_key))

    def action_copy(self) -> None:
        self.copy(self.table.cursor_key)

    def action_mark(self) -> None:
        run_id, marked = self.table.cursor_key, self.context.marked
        if run_id is None:
            self.note_no_row()
            return
        if run_id in marked:
            marked.remove(run_id)
        else:
            del marked[: max(0, len(marked) - MAX_RUNS + 1)]
            marked.append(run_id)
        self.refresh_all()

    def action_compare(self) -> None:
        marked = self.context.marked
        if len(marked) >= 2:
            self.post_message(ScreenOpened("compare", *sorted(marked)))
            return
        super().action_compare()

    def _chosen(self) -> list[Chosen]:
        run = self.context.run(self.table.cursor_key) if self.table.cursor_key else None
        return [choose_run(self.context, run)] if run is not None else []
