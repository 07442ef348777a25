"""The page of the keys of the screens, by screen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from coach.config.keys import FIXED_SCREEN_KEYS, LAUNCH_KEYS
from coach.launch.recipe import data_dir
from coach.launch.recipe_file import read_recipe_file
from coach.tui.keys import GENERAL_KEYS, MOVES, SHIPPED, Key, keys_of
from coach.tui.screen_specs import SCREENS, Kind, ScreenSpec
from reference_pages.markdown import code, page, table, text

_INTRODUCTION = f"""\
`?` on a screen lists the keys that work there. A letter means the same on every screen. The column *id*
is the name by which `keys.ID = "x"` in `config.toml` chooses another key; {
    ", ".join(f"`{key}`" for key in FIXED_SCREEN_KEYS)
} stay as they are. Keys marked with † lead to a change: read-only, in a recording
and for root they are off, and a site can switch them off."""
_LAUNCHING = f"""\
These launch a recipe from any screen that shows data: the plan is shown first, and nothing is submitted
before `Enter`. The keys {", ".join(f"`{key}`" for key in LAUNCH_KEYS)} launch what `keys.6` to `keys.9`
of the config name; a [coach.toml](coach-toml.md) gives keys to trainings of a project."""

_SHOWS = "It shows data: the keys of every screen that shows data work too."
_SHOWS_NONE = "Beside these only the keys of every screen work."


def keys_page() -> str:
    """docs/reference/keys.md."""
    everywhere = [key for key in SHIPPED.values() if _is_everywhere(key)]
    parts = [
        _INTRODUCTION,
        "## On every screen",
        _table(everywhere),
        "## On every screen that shows data",
        _table(_general(everywhere)),
        "## In the demo",
        _table([key for key in SHIPPED.values() if key.is_of_story]),
        "## In every list and text",
        table(("key", "does"), [(_label(keys), text(does)) for keys, does in MOVES]),
        "In the fields of a form `↑` and `↓` go to the field above and below.",
        "## Launch keys",
        _LAUNCHING,
        table(("key", "recipe", "launches"), _launch_rows()),
    ]
    told = {key.id for key in (*everywhere, *_general(everywhere))}
    told |= {key.id for key in SHIPPED.values() if key.is_of_story}
    for spec in SCREENS:
        own = [key for key in keys_of(spec) if key.id not in told or _is_told_apart(key, spec)]
        parts += [f"## {spec.word} (`{spec.name}`)", _SHOWS if Kind.SHOW in spec.kinds else _SHOWS_NONE]
        parts += [_table(own)] if own else []
    return page("Keys", *parts)


def _is_everywhere(key: Key) -> bool:
    return Kind.ANY in key.places and not key.is_of_story


def _general(everywhere: Iterable[Key]) -> list[Key]:
    known = {key.id for key in everywhere}
    general = (SHIPPED[key.id] for key in GENERAL_KEYS if key.id not in known)
    return [key for key in general if Kind.SHOW in key.places]


def _is_told_apart(key: Key, spec: ScreenSpec) -> bool:
    """True if the key belongs to all screens with data and also works on this screen, which has none."""
    return Kind.SHOW in key.places and Kind.SHOW not in spec.kinds and spec.name in key.places


def _table(keys: Iterable[Key]) -> str:
    rows = [
        (
            _label(key.label),
            f"`{key.id}`{' †' if key.is_change else ''}",
            text(key.description),
            text(key.tooltip),
        )
        for key in keys
    ]
    return table(("key", "id", "does", "more"), rows)


def _label(keys: str) -> str:
    return " ".join(code(key) for key in keys.split())


def _launch_rows() -> list[tuple[str, str, str]]:
    found = []
    for path in sorted(data_dir().joinpath("recipes").glob("*.toml")):
        recipe = read_recipe_file(path, Path(data_dir() / "trainers"))
        if recipe.key is not None:
            found.append((code(recipe.key), code(recipe.name), text(recipe.title)))
    return sorted(found)
