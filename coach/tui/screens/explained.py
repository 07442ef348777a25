"""The values under the cursor explained: the meaning of each, its source, its age, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from coach.analysis.explaining.words import Explained
from coach.model.judging.finding import Finding
from coach.render.text import Line
from coach.tui.bases.page import PageScreen
from coach.tui.context import Context
from coach.tui.messages import ScreenOpened
from coach.tui.render.explained import explain_finding, explained_lines


class ExplainedScreen(PageScreen, screen="explained"):
    """The values at the time of opening, with their growing ages. `E` opens the page of the finding's
    rule."""

    def __init__(
        self, context: Context, title: str, values: Sequence[Explained], finding: Finding | None = None
    ) -> None:
        super().__init__(context, ("cluster", title))
        self._values = tuple(values)
        self._finding = finding

    def lines(self, width: int) -> list[Line]:
        values, finding = self._values, self._finding
        if finding is not None:
            values = (explain_finding(finding), *values)
        return explained_lines(values, finding, self.context.snapshot.sources, self.context.now_s, width)

    def action_explain(self) -> None:
        if self._finding is None:
            self.note("nothing was found here: there is no rule to explain")
        else:
            self.post_message(ScreenOpened("rule", self._finding.rule))
