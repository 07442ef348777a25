"""The help: every key that works on the screen one came from."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.tui.bases.screen import CoachScreen, Context
from coach.tui.keys.table import MOVES, bindings_of, keys_of
from coach.tui.render.help import help_lines
from coach.tui.widgets.lines import LinesView


class HelpScreen(CoachScreen):
    """Made of the key table alone."""

    PLACE = "help"
    BINDINGS = bindings_of("help")

    def __init__(self, context: Context, place: str, crumbs: tuple[str, ...]) -> None:
        super().__init__(context, (*crumbs, "keys"))
        self._of = place

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    def show(self) -> None:
        rows = [
            (key.label, key.description, key.tooltip, self.reason_off(key))
            for key in keys_of(self._of, self.context.launch_keys)
        ]
        self.pane("#body").set_lines(help_lines(self._of, rows, MOVES, self.app.size.width - 2))
