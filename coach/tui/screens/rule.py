"""The page of a rule: the observation, why it matters, when the rule stays silent, and what to do. A topic's
page looks like a lesson."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.model.errors import UserError
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.messages import RuleWanted
from coach.tui.render.error import error_lines
from coach.tui.render.recipes import markdown_lines
from coach.tui.render.rule import rule_lines
from coach.tui.render.text import line, muted
from coach.tui.widgets.lines import LinesView


class RuleScreen(CoachScreen, screen="rule"):
    """The page, with the text of `coach explain`."""

    def __init__(self, context: Context, code: str) -> None:
        super().__init__(context, ("cluster", code))
        self._code = code
        self._text: str | None = None
        self._error: UserError | None = None

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()
        self.post_message(RuleWanted(self._code))

    def set_text(self, text: str) -> None:
        self._text = text
        self.refresh_all()

    def refuse(self, error: UserError) -> None:
        self._error = error
        self.refresh_all()

    def show(self) -> None:
        width = self.app.size.width - 2
        if self._error is not None:
            rows = error_lines(self._error, width)
        elif self._text is None:
            rows = [line(muted(" looking it up…"))]
        elif self._text.startswith("# "):
            rows = markdown_lines(self._text, width)
        else:
            rows = rule_lines(self._text, width)
        self.pane("#body").set_lines(rows)
