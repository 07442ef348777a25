"""The Cohort screen: the runs that people share in the course's directory, and the people without a run."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.model.teaching.cohort import Cohort, Person, Summary
from coach.render.text import printable
from coach.tui.bases.list import ListScreen
from coach.tui.messages import ScreenOpened, Wanted
from coach.tui.question import Answer, Question
from coach.tui.render.answer import answer_lines
from coach.tui.render.cohort import (
    COHORT_COLUMNS,
    EMPTY_KEY,
    cohort_rows,
    cohort_title,
    idle_page,
    row_key,
    run_page,
    verdict_lines,
)
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.lines import LinesView

REREAD_S = 30.0
"""Seconds between two reads of the directory. Runs write no more often, and a read opens hundreds of
files."""


class CohortScreen(ListScreen, screen="cohort"):
    """The table of people and runs. It reads the directory again every REREAD_S while it is on top and the
    user is active."""

    questions = (Question.COHORT,)

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="told", can_focus=False)
        yield KeyedTable(COHORT_COLUMNS, id="cohort", classes="pane")
        yield FilterLine()

    def on_mount(self) -> None:
        self.post_message(Wanted(Question.COHORT, is_anew=True))  # the roster may have changed

    @property
    def _answer(self) -> Answer[Cohort]:
        return self.context.answers[Question.COHORT]

    def tick(self) -> None:
        super().tick()
        answer, now_s = self._answer, self.context.now_s
        last_s = max(
            (time_s for time_s in (answer.time_s, answer.failed_s) if time_s is not None), default=now_s
        )
        if self.context.asleep_s is None and now_s - last_s > REREAD_S:
            self.post_message(Wanted(Question.COHORT, is_anew=True))

    def show(self) -> None:
        now_s, answer, width = self.context.now_s, self._answer, self.app.size.width
        cohort = answer.value
        heading = answer_lines("the cohort", answer, now_s, self.context.label, width)
        heading += verdict_lines(cohort, now_s, width) if cohort is not None else []
        self.pane("#told").fit_lines(heading)
        if cohort is None:
            self.table.set_rows([], "nothing is known" if answer.error else "reading…")
            return
        self.table.set_rows(cohort_rows(cohort, now_s), "nobody has shared anything yet")
        self.table.set_title(cohort_title(cohort) + self.filter_words)

    def action_open(self) -> None:
        cohort, key = self._answer.value, self.table.cursor_key
        if cohort is None:
            return
        if key == EMPTY_KEY:
            self.post_message(ScreenOpened("explained", "nothing yet", idle_page(cohort)))
        for person in cohort.people:
            for each in person.runs:
                if row_key(person, each.run_id) == key:
                    self._open_run(cohort, person, each)

    def _open_run(self, cohort: Cohort, person: Person, each: Summary) -> None:
        """Open one's own run; for the run of another person, open the page of the data that it shares."""
        if self.context.run(each.run_id) is not None:
            self.post_message(ScreenOpened("job", each.run_id))
            return
        title = printable(f"{person.user} {each.thing}")
        page = run_page(cohort, person, each, self.context.now_s)
        self.post_message(ScreenOpened("explained", title, page))
