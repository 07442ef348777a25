"""The Compare screen: what a change did, measured."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.analysis.comparing.two_runs import compare
from coach.model.training.run import Run
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.render.compare import compare_lines
from coach.tui.widgets.lines import LinesView


class CompareScreen(CoachScreen, screen="compare"):
    """Two runs, the parent or the older one first."""

    def __init__(self, context: Context, before: str, after: str) -> None:
        super().__init__(context, ("cluster", "compare"))
        self._before = before
        self._after = after
        self.targets = (before, after)

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    def show(self) -> None:
        targets, history = self.context.snapshot.targets, self.context.session.history
        before, after = targets.get(self._before), targets.get(self._after)
        result = None
        if before is not None and after is not None:
            result = compare(before, history(self._before), after, history(self._after))
        sides = (self._side(self._before), self._side(self._after))
        self.pane("#body").set_lines(compare_lines(result, *sides, self.app.size.width - 1))

    def _side(self, run_id: str) -> tuple[str, Run | None, str | None]:
        run = self.context.run(run_id)
        return run_id, run, self.context.state_of(run) if run is not None else None
