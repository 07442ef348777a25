"""The base of screens that are one text."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.render.text import Line
from coach.tui.bases.screen import CoachScreen
from coach.tui.widgets.lines import LinesView


class PageScreen(CoachScreen):
    """A screen whose lines fill it and scroll."""

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    def lines(self, width: int) -> list[Line]:
        """The text, for a width without the scroll bar."""
        raise NotImplementedError

    def show(self) -> None:
        self.pane("#body").set_lines(self.lines(self.app.size.width - 2))
