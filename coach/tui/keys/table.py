"""The table of all keys: the action of each, the screens where it works, and why it may be off.

Footer, help and palette are built from this table, so they agree. A letter has the same meaning on every
screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from textual.binding import Binding, BindingType

from coach.model.launching.site import Switch
from coach.tui.keys.coach import COACH_KEYS
from coach.tui.keys.jobs import JOB_KEYS
from coach.tui.keys.key import Key
from coach.tui.keys.panes import PANE_KEYS
from coach.tui.keys.questions import QUESTION_KEYS
from coach.tui.keys.runs import RUN_KEYS
from coach.tui.keys.screens import SCREEN_KEYS
from coach.tui.keys.tables import OPEN_KEYS, TABLE_KEYS
from coach.tui.mode import Mode
from coach.tui.ports import RecipeKey
from coach.tui.screen_specs import Kind, ScreenSpec

GROUPS: tuple[tuple[str, tuple[Key, ...]], ...] = (
    ("The question", QUESTION_KEYS),
    ("Rows and tables", (*OPEN_KEYS, *TABLE_KEYS)),
    ("Runs and findings", RUN_KEYS),
    ("Jobs", JOB_KEYS),
    ("Panes and views", PANE_KEYS),
    ("Screens", SCREEN_KEYS),
    ("coach", COACH_KEYS),
)
"""All keys, in the groups of the help."""
OWN_KEYS: tuple[Key, ...] = (*OPEN_KEYS, *QUESTION_KEYS, *RUN_KEYS, *JOB_KEYS, *TABLE_KEYS, *PANE_KEYS)
"""Keys that act on the content of a screen."""
GENERAL_KEYS: tuple[Key, ...] = (*SCREEN_KEYS, *COACH_KEYS)
"""Keys of the whole app; they stand after the others."""
KEYS: tuple[Key, ...] = (*OWN_KEYS, *GENERAL_KEYS)

SwitchedOff = Mapping[Switch, str]
"""Functions that the site has switched off, with its reasons."""
NOTHING_OFF: SwitchedOff = MappingProxyType({})

MOVES = (
    ("↑ ↓ j k", "Move by one line"),
    ("PgUp PgDn", "Move by one page"),
    ("Home End g G", "First and last line"),
    ("← →", "Scroll sideways"),
)


def launch_keys(recipes: Iterable[RecipeKey]) -> tuple[Key, ...]:
    """One launch key for each recipe that declares a key."""
    return tuple(
        Key(
            id=f"launch_{recipe.key}",
            key=recipe.key,
            label=recipe.key,
            word=recipe.word,
            description=f"Launch {recipe.word}",
            tooltip=f"{recipe.title}. Shows the plan first; nothing is submitted before Enter",
            places=frozenset({Kind.SHOW}),
            action=f"app.launch('{recipe.key}')",
            is_change=True,
            switch=Switch.LAUNCH,
        )
        for recipe in recipes
        if recipe.key is not None
    )


def in_force(chosen: Mapping[str, tuple[str, str]]) -> Mapping[str, Key]:
    """All keys by id. `chosen` has the key and the label of each remapped one."""
    keys = [
        replace(key, key=chosen[key.id][0], label=chosen[key.id][1]) if key.id in chosen else key
        for key in KEYS
    ]
    labels = {key.id: key.label for key in keys}
    return MappingProxyType(
        {
            key.id: replace(
                key, tooltip=key.tooltip.format(**labels), elsewhere=key.elsewhere.format(**labels)
            )
            for key in keys
        }
    )


SHIPPED = in_force({})
"""All keys by id, without remapping."""


def keys_of(
    spec: ScreenSpec, more: Iterable[Key] = (), table: Mapping[str, Key] = SHIPPED
) -> tuple[Key, ...]:
    """The keys that work on a screen. Launch keys come before those of the whole app."""
    own, general = ([table[key.id] for key in keys] for keys in (OWN_KEYS, GENERAL_KEYS))
    return tuple(key for key in (*own, *more, *general) if key.works_on(spec))


def why_dead(
    pressed: str, character: str | None, spec: ScreenSpec, table: Mapping[str, Key] = SHIPPED
) -> str | None:
    """Why a key does nothing on a screen that does not have it. None if it is neither a character nor a key
    of any screen.

    `pressed` is Textual's name of the key, `character` the character that it types.
    """
    found = [key for key in table.values() if key.key == pressed]
    if any(key.opens == spec.name for key in found):
        return f"{found[0].label} opens this screen: you are there"
    for key in found:
        if key.elsewhere:
            return f"{key.label} {key.elsewhere}"
    return None if character is None else f"{character} is no key: {table['help'].label} lists the keys"


def bindings_of(spec: ScreenSpec) -> list[BindingType]:
    """Textual's bindings of a screen. The app's own keys are bound there too, so that one table is enough."""
    return [
        Binding(
            key.key,
            key.action,
            key.description,
            id=spec.binding_id(key.id),
            priority=key.is_priority,
            show=False,
        )
        for key in KEYS
        if key.works_on(spec)
    ]


def can_launch(mode: Mode, switched_off: SwitchedOff) -> bool:
    """True if neither the mode nor the site forbids launches."""
    return mode is Mode.LIVE and Switch.LAUNCH not in switched_off


def reason_off(
    key: Key, mode: Mode, why_readonly: str | None = None, switched_off: SwitchedOff = NOTHING_OFF
) -> str | None:
    """Why a key does nothing; None if it works. `why_readonly` is the reason if the settings forbid changes;
    `switched_off` has the site's reason for each switch that is off."""
    if mode is Mode.LIVE and key.switch is not None:
        return switched_off.get(key.switch)
    if not key.is_change or mode is Mode.LIVE:
        return None
    if mode is Mode.READONLY:
        return why_readonly or "coach was opened read-only"
    if mode is Mode.ROOT:
        return "you are root; `coach --as-root` allows it"
    return "this is a recording: nothing in it can be changed"
