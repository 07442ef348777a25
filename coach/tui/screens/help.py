"""The help: the keys of the footer on the first page, then every other key of the screen below."""

from __future__ import annotations

from collections.abc import Mapping

from coach.config.keys import SCREEN_KEYS
from coach.render.text import Line
from coach.tui.bases.page import PageScreen
from coach.tui.context import Context
from coach.tui.keys import GROUPS, MOVES, Key, keys_of
from coach.tui.render.header import Hint
from coach.tui.render.help import HelpGroup, HelpRow, help_lines
from coach.tui.screen_specs import ScreenSpec


class HelpScreen(PageScreen, screen="help"):
    """The help, built from the key table alone."""

    def __init__(
        self, context: Context, of: ScreenSpec, crumbs: tuple[str, ...], first: tuple[Hint, ...]
    ) -> None:
        """`of` is the screen below; `first` are the hints of its footer."""
        super().__init__(context, (*crumbs, "keys"))
        self._of = of
        self._first = first

    def lines(self, width: int) -> list[Line]:
        keys = {key.id: key for key in keys_of(self._of, self.context.launch_keys, self.context.key_table)}
        ids = [(key.label, key.id) for key in keys.values() if key.id in SCREEN_KEYS]
        height = self.pane("#body").room.height
        return help_lines(self._of.word, self._rows(keys), self._groups(keys), MOVES, ids, width, height)

    def _in_footer(self, keys: Mapping[str, Key]) -> list[tuple[str, Key | None]]:
        """The keys in the footer with their labels; None for the hint that stands for the keys of all
        recipes."""
        found = [(label, keys.get(key_id)) for key_id, label, _, _ in self._first]
        return [(label, key if key is not None and key.label == label else None) for label, key in found]

    def _rows(self, keys: Mapping[str, Key]) -> list[HelpRow]:
        return [
            self._row(key) if key is not None else self._launch(label) for label, key in self._in_footer(keys)
        ]

    def _groups(self, keys: Mapping[str, Key]) -> list[HelpGroup]:
        """The other keys; those of the recipes come before those of the whole app."""
        first = {key.id for _, key in self._in_footer(keys) if key is not None}
        groups = (*GROUPS[:-2], ("Launch a recipe", self.context.launch_keys), *GROUPS[-2:])
        rest = (
            (title, [self._row(keys[key.id]) for key in group if key.id in keys.keys() - first])
            for title, group in groups
        )
        return [(title, rows) for title, rows in rest if rows]

    def _row(self, key: Key) -> HelpRow:
        return key.label, key.description, key.tooltip, self.reason_off(key)

    def _launch(self, label: str) -> HelpRow:
        """One row for the keys of all recipes, as in the footer."""
        launches = self.context.launch_keys
        recipes = ", ".join(f"{key.label} {key.word}" for key in launches)
        return label, "Launch a recipe", recipes, self.reason_off(launches[0]) if launches else None
