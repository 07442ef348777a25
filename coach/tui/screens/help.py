"""The help: every key that works on the screen one came from."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.keys.table import MOVES, keys_of
from coach.tui.render.help import help_lines
from coach.tui.screen_specs import ScreenSpec
from coach.tui.widgets.lines import LinesView


class HelpScreen(CoachScreen, screen="help"):
    """Made of the key table alone."""

    def __init__(self, context: Context, of: ScreenSpec, crumbs: tuple[str, ...]) -> None:
        super().__init__(context, (*crumbs, "keys"))
        self._of = of

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    def show(self) -> None:
        rows = [
            (key.label, key.description, key.tooltip, self.reason_off(key))
            for key in keys_of(self._of, self.context.launch_keys)
        ]
        self.pane("#body").set_lines(help_lines(self._of.word, rows, MOVES, self.app.size.width - 2))
