"""All findings of one run in full: proof, fixes, and missing measurements."""

from __future__ import annotations

from coach.model.judging.finding import Finding
from coach.render.text import Line, crumb
from coach.tui.bases.page import PageScreen
from coach.tui.context import Context
from coach.tui.fix_way import fix_way
from coach.tui.messages import ScreenOpened
from coach.tui.render.finding import finding_detail, finding_starts, look_line, proof_place


class FindingScreen(PageScreen, screen="finding"):
    """The findings, in the form of `coach check`."""

    def __init__(self, context: Context, run_id: str) -> None:
        super().__init__(context, ("cluster", crumb(context.run(run_id) is not None, run_id), "findings"))
        self.run_id = run_id
        self.targets = (run_id,)
        self._index = 0
        """Index of the marked finding."""

    def lines(self, width: int) -> list[Line]:
        diagnosis = self.context.diagnoses.get(self.run_id)
        if diagnosis is None:
            return [look_line(None)]
        return finding_detail(diagnosis, width, self.context.label, self._index)

    @property
    def _finding(self) -> Finding | None:
        """The marked finding."""
        diagnosis = self.context.diagnoses.get(self.run_id)
        findings = diagnosis.findings if diagnosis is not None else ()
        return findings[min(self._index, len(findings) - 1)] if findings else None

    def action_next(self) -> None:
        self._mark(self._index + 1)

    def action_previous(self) -> None:
        self._mark(self._index - 1)

    def _mark(self, index: int) -> None:
        """Mark a finding, and scroll to it."""
        starts = self._starts()
        if not 0 <= index < len(starts):
            self.note("no further finding in this direction")
            return
        self._index = index
        self.refresh_all()
        self.pane("#body").scroll_to(y=starts[index], animate=False, immediate=True)

    def action_open(self) -> None:
        """Open the log at the line that proves the marked finding."""
        place = proof_place(self._finding) if self._finding is not None else None
        if place is None:
            self.note("no line of a log proves this: its proof is shown here")
        else:
            self.post_message(ScreenOpened("log", self.run_id, place))

    def action_open_log(self) -> None:
        """Open the log: at the cause, or at the line that proves another finding if that one is marked."""
        place = proof_place(self._finding) if self._index and self._finding is not None else None
        self.post_message(ScreenOpened("log", self.run_id, *([place] if place else [])))

    def _starts(self) -> list[int]:
        diagnosis = self.context.diagnoses.get(self.run_id)
        return finding_starts(diagnosis, self._width) if diagnosis else []

    @property
    def _width(self) -> int:
        return self.app.size.width - 2

    def action_copy(self) -> None:
        self.copy(self.crumbs[1], self.run_id)

    def action_explain(self) -> None:
        self.explain(self._finding.rule if self._finding is not None else None)

    def action_fix(self) -> None:
        if self.is_off("fix"):
            return
        self.go(fix_way(self.context, self.run_id, is_advice_shown=True))
