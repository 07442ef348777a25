"""A new screen as a contributor adds it: one file with its renderer. The line that declares it is in
tests/tui/test_screen_specs.py."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.model.snapshot import Snapshot
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.render.text import Line, line
from coach.tui.widgets.lines import LinesView


def tide_lines(snapshot: Snapshot) -> list[Line]:
    """How many jobs wait, and how many nodes there are."""
    waiting = sum(job.state == "PENDING" for job in snapshot.jobs)
    return [line(f" {waiting} jobs wait before {len(snapshot.nodes)} nodes")]


class TideScreen(CoachScreen, screen="tide"):
    """One line."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, ("cluster", "tide"))

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    def show(self) -> None:
        self.pane("#body").set_lines(tide_lines(self.context.snapshot))
