"""The question before a job is cancelled: the exact command, answered by `y`, never by Enter."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.tui.asking import AskingScreen
from coach.tui.base import Context
from coach.tui.keys import bindings_of
from coach.tui.messages import CancelConfirmed
from coach.tui.render.text import BLANK, Span, line, muted, printable, strong
from coach.tui.widgets.lines import LinesView


class ConfirmScreen(AskingScreen):
    """Cancels one job."""

    PLACE = "confirm"
    BINDINGS = bindings_of("confirm")

    def __init__(self, context: Context, target: str, label: str) -> None:
        super().__init__(context, ("cluster", f"cancel {target}"), "asking what would be run…")
        self.target = target
        self._label = label
        self._command: str | None = None

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    def set_command(self, command: str) -> None:
        self._command = command
        self.ask()

    def show(self) -> None:
        rows = [BLANK, line(strong(" Cancel "), printable(self._label)), BLANK]
        if self._command is not None:
            rows.append(line(muted("   $ "), Span(printable(self._command), "accent")))
            rows.append(BLANK)
        rows.extend(self.answer_lines("y", "runs this command", self.app.size.width))
        self.pane("#body").set_lines(rows)

    def action_confirm(self) -> None:
        if self._command is None or not self.admits_key():
            return
        self.work("cancelling…")
        self.post_message(CancelConfirmed(self.target))
