"""The Findings screen: the findings of all the user's jobs, the most costly first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from textual.widget import Widget

from coach.analysis.judging.no_finding import Look, look_of
from coach.analysis.judging.ranking import RankedFinding, by_impact
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.render.text import plural
from coach.tui.bases.list import ListScreen
from coach.tui.context import Context
from coach.tui.messages import ScreenOpened, Wanted
from coach.tui.question import Question
from coach.tui.render.finding import proof_place
from coach.tui.render.findings import FINDING_COLUMNS, finding_columns, finding_key, finding_rows
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.keyed_table import KeyedTable


class FindingsScreen(ListScreen, screen="findings"):
    """The same list as `coach check` prints. While it is on top, jobs that ended within a day are read one
    after the other."""

    questions = (Question.PAST_JOBS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._found: list[RankedFinding] = []

    def compose_body(self) -> Iterator[Widget]:
        yield KeyedTable(FINDING_COLUMNS, id="findings", classes="pane")
        yield FilterLine()

    def on_mount(self) -> None:
        self.post_message(Wanted(Question.REMEMBERED))
        self.post_message(Wanted(Question.PAST_JOBS))

    def show(self) -> None:
        context = self.context
        self._found = by_impact(context.found, context.now_s)
        num_judged, num_unread = len(context.found), len(context.unread)
        looks = Counter(look_of(context.diagnoses.get(target)) for target in context.found)
        words = (Look.HEALTHY, Look.TOO_EARLY, Look.SILENT, Look.UNKNOWN)
        told = [f"{looks[look]} {look.value}" for look in words if looks[look]]
        empty = f"no finding: {', '.join(told)}" if told else Look.NOT_LOOKED_AT.value
        self.table.lay_out(finding_columns(self._found, self.app.size.width), None)
        self.table.set_rows(finding_rows(self._found, context.now_s), empty)
        title = f"{plural(len(self._found), 'finding')} in {plural(num_judged, 'checked job')}"
        if num_unread:
            title += f" · {num_unread} {Look.NOT_LOOKED_AT.value} yet, being read"
        if num_held := sum(why_withheld(each) is not None for each in context.diagnoses.values()):
            title += f" · {num_held} hidden, drill: answer first"
        self.table.set_title(title + self.filter_words)

    def action_copy(self) -> None:
        self.copy(self._target(), self._target())

    def action_explain(self) -> None:
        row = self._row()
        self.explain(row.finding.rule if row is not None else None)

    def action_fix(self) -> None:
        """Show the change that the row's finding suggests, else the first one of its job; if no finding of
        the job has one, the finding's advice."""
        if self.is_off("fix"):
            return
        row = self._row()
        if row is None:
            self.note_no_row()
            return
        self.go_to_fix(row.target, row.finding)

    def action_open(self) -> None:
        target = self._target()
        if target is None:
            self.note_no_row()
        else:
            self.post_message(ScreenOpened("finding", target))

    def action_open_log(self) -> None:
        """Open the log of the row's job, at the line that proves the finding."""
        row = self._row()
        if row is None:
            self.note_no_row()
            return
        place = proof_place(row.finding)
        self.post_message(ScreenOpened("log", row.target, *([place] if place else [])))

    def _target(self) -> str | None:
        row = self._row()
        return row.target if row is not None else None

    def _row(self) -> RankedFinding | None:
        """The finding under the cursor."""
        key = self.table.cursor_key
        return next((each for each in self._found if finding_key(each) == key), None)
