"""The values under the cursor explained: the meaning of each, its source, its age, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.widget import Widget

from coach.analysis.explaining.words import Explained
from coach.model.judging.finding import Finding
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.messages import ScreenOpened
from coach.tui.render.explained import explain_finding, explained_lines
from coach.tui.widgets.lines import LinesView


class ExplainedScreen(CoachScreen, screen="explained"):
    """The values at the time of opening, with their growing ages. `E` opens the page of the finding's
    rule."""

    def __init__(
        self, context: Context, title: str, values: Sequence[Explained], finding: Finding | None = None
    ) -> None:
        super().__init__(context, ("cluster", title))
        self._values = tuple(values)
        self._finding = finding

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    def show(self) -> None:
        values, finding = self._values, self._finding
        if finding is not None:
            values = (explain_finding(finding), *values)
        context = self.context
        rows = explained_lines(
            values, finding, context.snapshot.sources, context.now_s, self.app.size.width - 2
        )
        self.pane("#body").set_lines(rows)

    def action_explain(self) -> None:
        if self._finding is None:
            self.note("nothing was found here: there is no rule to explain")
        else:
            self.post_message(ScreenOpened("rule", self._finding.rule))
