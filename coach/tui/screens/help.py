"""The help: the keys of the footer on the first page, then every other key that works on the screen below."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.keys.key import Key
from coach.tui.keys.table import GROUPS, MOVES, keys_of
from coach.tui.render.header import Hint
from coach.tui.render.help import HelpRow, help_lines
from coach.tui.screen_specs import ScreenSpec
from coach.tui.widgets.lines import LinesView


class HelpScreen(CoachScreen, screen="help"):
    """Made of the key table alone."""

    def __init__(
        self, context: Context, of: ScreenSpec, crumbs: tuple[str, ...], first: tuple[Hint, ...]
    ) -> None:
        """`first` is what the footer of that screen shows."""
        super().__init__(context, (*crumbs, "keys"))
        self._of = of
        self._first = first

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    def show(self) -> None:
        body, launches = self.pane("#body"), self.context.launch_keys
        keys = {key.id: key for key in keys_of(self._of, launches, self.context.key_table)}
        rows = [
            self._row(key)
            if (key := keys.get(name)) is not None and key.label == label
            else self._launch(label)
            for name, label, _, _ in self._first
        ]
        first = {name for name, label, _, _ in self._first if name in keys and keys[name].label == label}
        groups = [*GROUPS[:-2], ("Launch a recipe", launches), *GROUPS[-2:]]
        rest = [
            (title, [self._row(keys[key.id]) for key in group if key.id in keys and key.id not in first])
            for title, group in groups
        ]
        body.set_lines(
            help_lines(
                self._of.word,
                rows,
                [(title, group) for title, group in rest if group],
                MOVES,
                self.app.size.width - 2,
                body.room.height,
            )
        )

    def _row(self, key: Key) -> HelpRow:
        return key.label, key.description, key.tooltip, self.reason_off(key)

    def _launch(self, label: str) -> HelpRow:
        """The keys of the recipes, as the footer shows them: in one."""
        launches = self.context.launch_keys
        recipes = ", ".join(f"{key.label} {key.word}" for key in launches)
        return label, "Launch a recipe", recipes, self.reason_off(launches[0]) if launches else None
