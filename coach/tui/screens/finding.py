"""All findings of one run, whole: proof, fixes, and what could not be measured."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.analysis.judging.no_finding import why_no_fix
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.messages import FixRequested
from coach.tui.render.finding import finding_detail, finding_starts, look_line
from coach.tui.render.runs import short_id
from coach.tui.widgets.lines import LinesView


class FindingScreen(CoachScreen, screen="finding"):
    """Reads like `coach check`."""

    def __init__(self, context: Context, run_id: str) -> None:
        kind = "run" if context.run(run_id) is not None else "job"
        super().__init__(context, ("cluster", f"{kind} {short_id(run_id)}", "findings"))
        self.run_id = run_id
        self.targets = (run_id,)

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    def show(self) -> None:
        diagnosis = self.context.diagnoses.get(self.run_id)
        rows = finding_detail(diagnosis, self._width) if diagnosis else [look_line(None)]
        self.pane("#body").set_lines(rows)

    def action_next(self) -> None:
        top = self.pane("#body").scroll_offset.y
        self._show_from(next((start for start in self._starts() if start > top), None))

    def action_previous(self) -> None:
        top = self.pane("#body").scroll_offset.y
        self._show_from(next((start for start in reversed(self._starts()) if start < top), None))

    def _starts(self) -> list[int]:
        diagnosis = self.context.diagnoses.get(self.run_id)
        return finding_starts(diagnosis, self._width) if diagnosis else []

    def _show_from(self, first: int | None) -> None:
        """Scroll to this line."""
        body = self.pane("#body")
        before = body.scroll_offset.y
        if first is not None:
            body.scroll_to(y=first, animate=False, immediate=True)
        if body.scroll_offset.y == before:
            self.note("no further finding in this direction")

    @property
    def _width(self) -> int:
        return self.app.size.width - 2

    def action_copy(self) -> None:
        self.copy(self.crumbs[1], self.run_id)

    def action_explain(self) -> None:
        self.explain(self.run_id)

    def action_fix(self) -> None:
        if self.is_off("fix"):
            return
        diagnosis = self.context.diagnoses.get(self.run_id)
        fixes = [fix for finding in (diagnosis.findings if diagnosis else ()) for fix in finding.fixes]
        if any(fix.changes for fix in fixes) or self.context.run(self.run_id) is None:
            self.post_message(FixRequested(self.run_id))
        elif fixes:
            self.note("advice is yours to follow: it stands behind each →")
        else:
            self.note(why_no_fix(diagnosis))
