"""What would mend a job that coach did not launch: its batch script as it would have to be. Here is nothing
to confirm: it is somebody's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from textual.widget import Widget

from coach.model.errors import UserError
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.render.foreign_fix import foreign_fix_lines
from coach.tui.render.plan import error_lines
from coach.tui.render.text import line, muted
from coach.tui.widgets.lines import LinesView

if TYPE_CHECKING:
    from coach.workflows.launching.foreign_fix import ForeignFixes


class ForeignFixScreen(CoachScreen, screen="foreign_fix"):
    """Reads like `coach fix JOB`."""

    def __init__(self, context: Context, job_id: str) -> None:
        super().__init__(context, ("cluster", f"job {job_id}", "fix"))
        self._found: ForeignFixes | None = None
        self._lost: Sequence[str] = ()
        self._error: UserError | None = None

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    def set_fixes(self, found: ForeignFixes, lost: Sequence[str]) -> None:
        self._found, self._lost = found, lost
        self.refresh_all()

    def refuse(self, error: UserError) -> None:
        self._error = error
        self.refresh_all()

    def action_fix(self) -> None:
        self.note("this is the fix: it is for whoever wrote the script to make")

    def show(self) -> None:
        width = self.app.size.width - 2
        if self._error is not None:
            rows = error_lines(self._error, width)
        elif self._found is not None:
            rows = foreign_fix_lines(self._found, self._lost, width)
        else:
            rows = [line(muted(" looking for its batch script…"))]
        self.pane("#body").set_lines(rows)
