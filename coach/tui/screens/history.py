"""The History screen: the user's ended jobs, with how well they used their resources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from textual.widget import Widget

from coach.analysis.query.job_fields import past_job_vocabulary
from coach.analysis.query.language import in_order
from coach.model.slurm.accounting import PastJob
from coach.render.text import Line, Span, line, plural, printable, wrap
from coach.sources.slurm.node_sets import expand_nodes
from coach.tui.bases.table_views import TableViewScreen
from coach.tui.context import Context
from coach.tui.job_choice import Chosen, JobChoice, JobKeys, choose_target
from coach.tui.messages import ScreenOpened, Wanted
from coach.tui.question import Answer, Question
from coach.tui.render.answer import answer_lines
from coach.tui.render.history import HISTORY_COLUMNS, history_rows, past_key
from coach.tui.table_view import TableView
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.lines import LinesView
from coach.workflows.jobs.ended_jobs import PastJobs


class HistoryScreen(JobKeys, TableViewScreen, screen="history"):
    """The table of ended jobs, asked once when it opens: from accounting if it answers, else from the run
    directories and from the queues that coach saw."""

    questions = (Question.PAST_JOBS, Question.REMEMBERED)

    def __init__(self, context: Context) -> None:
        self._view: TableView[PastJob] = TableView(
            lambda: past_job_vocabulary(context.user, expand_nodes), HISTORY_COLUMNS
        )
        self._has_answer = False
        """True once Slurm's answer was shown."""
        super().__init__(context, ("cluster", "history"), {"past": self._view})
        self.job_choice = JobChoice(self, self._chosen)

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="told", can_focus=False)
        yield KeyedTable(HISTORY_COLUMNS, id="past", classes="pane")
        yield FilterLine()

    def on_mount(self) -> None:
        self.table.focus()
        self.post_message(Wanted(Question.REMEMBERED))
        self.post_message(Wanted(Question.PAST_JOBS))

    @property
    def table(self) -> KeyedTable:
        return self.query_one("#past", KeyedTable)

    @property
    def _answer(self) -> Answer[PastJobs]:
        return self.context.answers[Question.PAST_JOBS]

    @property
    def _jobs(self) -> tuple[PastJob, ...]:
        """The jobs that coach remembers, until Slurm's answer adds its own."""
        answer = self._answer.value
        return self.context.answers.past_jobs if answer is None else answer.jobs

    def _past(self) -> PastJob | None:
        """The job under the cursor."""
        return next((past for past in self._jobs if past_key(past) == self.table.cursor_key), None)

    def show(self) -> None:
        now_s, answer, width = self.context.now_s, self._answer, self.app.size.width
        heading = answer_lines("the last seven days", answer, now_s, self.context.label, width)
        heading += self._notes(width)
        self.pane("#told").fit_lines(heading)
        jobs = self._jobs
        empty = "no job of yours has ended" if answer.value is not None else "waiting for the first answer…"
        found, query = self._view.matching(jobs), self._view.view.filter
        if query and jobs:
            empty = "no job matches the filter; Esc clears it"
        self.table.lay_out(self._view.columns, self._view.sorted_column)
        if answer.value is not None and not self._has_answer:
            self._has_answer = True
            if self.table.cursor_key in self.table.keys[:1]:
                self.table.go_to_top_of_next()  # newer jobs come before those that coach remembers
        rows = history_rows(in_order(found, self._view.orders), now_s)
        self.table.set_rows(rows, "nothing is known" if answer.error else empty)
        title = plural(len(jobs), "ended job")
        self.table.set_title(
            f'{title} · filter "{printable(query)}": {len(found)} of {len(jobs)}' if query else title
        )

    def _notes(self, width: int) -> list[Line]:
        """The sources that did not answer, and rows that could not be read."""
        past = self._answer.value
        if past is None:
            return []
        notes = [*past.notes]
        if past.num_bad_rows:
            notes.append(f"{plural(past.num_bad_rows, 'row')} could not be read and are not shown")
        return [
            line(Span(f" {'  ' if index else '▲ '}{part}", "warning"))
            for note in notes
            for index, part in enumerate(wrap(printable(note), width - 4))
        ]

    def _run_id(self, past: PastJob) -> str | None:
        """The run id of a job; None if its directory is gone."""
        return past.run_id if past.run_id is not None and self.context.run(past.run_id) is not None else None

    def _chosen(self) -> list[Chosen]:
        past = self._past()
        if past is None:
            return []
        chosen = choose_target(self.context, self._run_id(past) or past.job.job_id, past.job)
        # Every row is the user's own job, but a run directory may not record its owner.
        return [replace(chosen, why_not_mine=None)] if chosen is not None else []

    def action_open(self) -> None:
        past = self._past()
        if past is None:
            self.note_no_row()
        elif (run_id := self._run_id(past)) is not None:
            self.post_message(ScreenOpened("job", run_id))
        else:
            self.post_message(ScreenOpened("job", past.job.job_id, past))

    def on_keyed_table_opened(self) -> None:
        self.action_open()

    def go_back(self) -> bool:
        return self.clear_filters()
