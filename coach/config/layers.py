"""Who wins: later layers over earlier ones, and a lock of the site over everybody.

Pure: the layers are read already. Every value keeps who said it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coach.config.file import Said
from coach.config.keys import KEYS, LAUNCH_FIELDS
from coach.model.launching.environment import Environment
from coach.model.launching.site import Lock

Values = Mapping[str, Said]


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says. `is_told` is False where nobody has to hear that a value does not count: coach
    wrote it itself."""

    values: Values
    is_told: bool = True


@dataclass(frozen=True, slots=True)
class Merged:
    """What counts."""

    values: Values
    notes: tuple[str, ...]
    """What somebody said in vain, and why."""


def all_locks(locks: Mapping[str, Lock], site: Values) -> dict[str, Lock]:
    """The locks, also by the keys that they imply.

    A locked table locks its keys. A locked choice of environment locks what could change behind its name: its
    description, and the interpreter.
    """
    spread = dict(locks)
    for table, lock in locks.items():
        for key in KEYS:
            if key.startswith(f"{table}."):
                spread.setdefault(key, lock)
    if "runs_roots" in spread:
        spread.setdefault("runs_root", spread["runs_roots"])
    environment = spread.get("launch.environment")
    if environment is not None:
        spread.setdefault("launch.python", environment)
        chosen = site.get("launch.environment")
        if chosen is not None and "=" not in chosen.value:
            spread.setdefault(f"environments.{chosen.value}", environment)
    return spread


def merge(site: Layer, later: Iterable[Layer], lock_of: Mapping[str, Lock]) -> Merged:
    """The site's values, and over them what later layers say, where the site left it open."""
    values = dict(site.values)
    notes = []
    for layer in later:
        for key, said in layer.values.items():
            lock = find_lock(lock_of, key)
            if lock is None:
                values[key] = said
                if key == "runs_root" and not said.is_site:
                    values.pop("runs_roots", None)
            elif layer.is_told and not _is_same(values.get(key), said):
                shown = "" if isinstance(said.value, Environment) else f" = {shown_value(said.value)}"
                notes.append(f"{said.origin}: {key}{shown} does not count: {lock.words}")
    return Merged(values, tuple(notes))


def find_lock(locks: Mapping[str, Lock], key: str) -> Lock | None:
    """The lock on a key, or on a table that it stands in."""
    parts = key.split(".")
    for length in range(len(parts), 0, -1):
        lock = locks.get(".".join(parts[:length]))
        if lock is not None:
            return lock
    return None


def shown_value(value: Any) -> str:
    """A value as a person would write it in the file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (frozenset, set)):
        return shown_value(sorted(value))
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(shown_value(item) for item in value)}]"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, int) else f'"{value}"'


def launch_fields(values: Values) -> dict[str, Any]:
    """What the layers say of a launch, by the fields of LaunchDefaults."""
    return {field: values[key].value for key, field in LAUNCH_FIELDS.items() if key in values}


def _is_same(winner: Said | None, said: Said) -> bool:
    return winner is not None and winner.value == said.value
