"""The keys that the user chose in the config, which replace those of the table."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from string import ascii_letters

from textual.keys import KEY_NAME_REPLACEMENTS

from coach.config import Settings
from coach.model.errors import UserError
from coach.tui.keys.key import Key
from coach.tui.keys.table import KEYS, MOVES, SHIPPED, in_force
from coach.tui.screen_specs import SCREENS, ScreenSpec


@dataclass(frozen=True, slots=True)
class KeysInForce:
    """The keys by the settings; without arguments, the shipped keys."""

    table: Mapping[str, Key] = field(default_factory=lambda: SHIPPED)
    """All keys by id."""
    keymap: Mapping[str, str] = field(default_factory=dict)
    """Textual's keymap: for each changed binding, its id → its key."""


def keys_in_force(settings: Settings) -> KeysInForce:
    """The keys by the settings. Raises UserError if two actions on one screen would have the same key."""
    table = in_force({key_id: _press(said) for key_id, said in settings.chosen_keys.items()})
    for key_id, said in settings.chosen_keys.items():
        taken = next(_taken(table, table[key_id]), None)
        if taken is not None:
            place = settings.origins.get(f"keys.{key_id}", "config")
            used = {key.label for key in (*KEYS, *table.values())}
            free = sorted(set(ascii_letters) - used - _moves())
            raise UserError(f"{place}: keys.{key_id} = {said!r}: {taken}", f"free: {' '.join(free)}")
    keymap = {
        spec.binding_id(key_id): table[key_id].key
        for key_id in settings.chosen_keys
        for spec in SCREENS
        if table[key_id].works_on(spec)
    }
    return KeysInForce(table, keymap)


def _taken(table: Mapping[str, Key], chosen: Key) -> Iterator[str]:
    """Other actions that already have the key chosen for this one."""
    if chosen.key in _moves():
        yield "it moves in every list and text"
    for spec in SCREENS:
        if chosen.works_on(spec):
            yield from _taken_on(spec, table, chosen)


def _taken_on(spec: ScreenSpec, table: Mapping[str, Key], chosen: Key) -> Iterator[str]:
    for other in table.values():
        if other.key == chosen.key and other.id != chosen.id and other.works_on(spec):
            yield f"on the {spec.word} screen it is keys.{other.id} ({other.description})"


def _moves() -> frozenset[str]:
    """Letters that move the cursor."""
    return frozenset(word for keys, _ in MOVES for word in keys.split() if len(word) == 1 and word.isalpha())


def _press(said: str) -> tuple[str, str]:
    """Textual's name of a key, and its label on the screens."""
    if len(said) > 1:
        return said, f"^{said[-1]}" if said.startswith("ctrl+") else said.capitalize()
    if said.isalnum():
        return said, said
    name = unicodedata.name(said, said).lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name), said
