"""The page of a rule: the observation, why it matters, when the rule stays silent, and what to do. A topic's
page looks like a lesson."""

from __future__ import annotations

from coach.model.errors import UserError
from coach.render.text import Line, line, muted
from coach.tui.bases.page import PageScreen
from coach.tui.context import Context
from coach.tui.messages import RuleWanted
from coach.tui.render.error import error_lines
from coach.tui.render.recipes import markdown_lines
from coach.tui.render.rule import rule_lines


class RuleScreen(PageScreen, screen="rule"):
    """The page, with the text of `coach explain`."""

    def __init__(self, context: Context, code: str) -> None:
        super().__init__(context, ("cluster", code))
        self._code = code
        self._text: str | None = None
        self._error: UserError | None = None

    def on_mount(self) -> None:
        self.post_message(RuleWanted(self._code))

    def set_text(self, text: str) -> None:
        self._text = text
        self.refresh_all()

    def refuse(self, error: UserError) -> None:
        self._error = error
        self.refresh_all()

    def lines(self, width: int) -> list[Line]:
        if self._error is not None:
            return error_lines(self._error, width)
        if self._text is None:
            return [line(muted(" looking it up…"))]
        return (markdown_lines if self._text.startswith("# ") else rule_lines)(self._text, width)
