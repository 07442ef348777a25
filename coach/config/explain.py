"""The settings in force, key by key, each with its origin: for a person who asks why coach acts as it does.

Pure: it reads only the settings, so the explained values are the values in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from coach.config.keys import FIXED, KEYS, Key
from coach.config.layers import shown_value
from coach.config.settings import Settings
from coach.model.launching.environment import Environment
from coach.model.launching.site import Advice, Switch

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Row:
    """One key. `value` has its JSON form, None if the key is not set."""

    key: str
    value: Any
    origin: str
    """`FILE:LINE`, `environment variable X` or `default`; for a root of runs also `$SCRATCH` or `home`."""
    lock: str | None
    """The site's reason why users may not set it."""

    @property
    def text(self) -> str | None:
        """The value in the form that the config file takes; None if the key is not set."""
        if self.value is None or self.value in ([], {}):
            return None
        if isinstance(self.value, dict):
            return ", ".join(f"{name} {shown_value(part)}" for name, part in self.value.items())
        return shown_value(self.value)

    @property
    def source(self) -> str:
        """The origin, in words for people."""
        return self.origin if self.lock is None else f"site, locked: {self.lock} ({self.origin})"


def rows(settings: Settings) -> Iterator[Row]:
    """Each setting in force, and each key that somebody added to an open table."""
    for key, value in _values(settings):
        lock = settings.lock_of(key)
        origin = settings.origins.get(key)
        if origin is None and key == "runs_root":
            origin = dict(settings.runs_root_candidates).get(settings.runs_root)
        if key == "runs_roots" and value:
            origin = settings.runs_root_candidates[0][1]
        if origin is None and lock is not None:
            origin = lock.origin
        yield Row(key, _plain(value), origin or DEFAULT, None if lock is None else lock.reason)


def _value(settings: Settings, key: Key) -> Any:
    """The value of a key, as a person writes it; None if it is not set."""
    if key.field:
        value = attrgetter(key.field)(settings)
        return value if value is None or key.kind.write is None else key.kind.write(value)
    table, _, name = key.name.partition(".")
    if table == "keys":
        return {**settings.recipe_keys, **settings.chosen_keys}.get(name)
    if table == "switches":
        return Switch(name) not in settings.switched_off
    return tuple(str(place) for place, _ in settings.runs_root_candidates)


def _values(settings: Settings) -> Iterator[tuple[str, Any]]:
    for key in KEYS.values():
        if key.kind is not FIXED:
            yield key.name, _value(settings, key)
    yield from _open("launch.sbatch", settings.launch.sbatch)
    for code, numbers in settings.thresholds.items():
        yield from _open(f"rules.{code}", numbers)
    yield from _open("environments", settings.environments)
    yield from _open("advice", settings.advice)
    for name in settings.locks:
        option = name.removeprefix("launch.sbatch.")
        if option != name and option not in settings.launch.sbatch:
            yield name, None


def _open(table: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        yield f"{table}.{name}", value


def _plain(value: Any) -> Any:
    match value:
        case Path():
            return str(value)
        case frozenset():
            return sorted(value)
        case tuple():
            return [_plain(each) for each in value]
        case Environment():
            parts: dict[str, Any] = {"kind": value.kind.value}
            for name in ("path", "modules", "image", "binds", "python", "setup", "variables", "torch"):
                if part := getattr(value, name):
                    parts[name] = _plain(part)
            return parts
        case Advice():
            return {"text": value.text} | ({"url": value.url} if value.url else {})
        case Mapping():
            return dict(value)
        case _:
            return value
