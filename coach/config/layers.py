"""Merges the layers of settings: later layers override earlier ones, and a site's lock overrides all.

Pure: the layers are already read. Each value keeps its origin.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from coach.config.file import Setting
from coach.config.keys import KEYS
from coach.config.settings import find_lock
from coach.model.launching.environment import Environment
from coach.model.launching.site import Lock

Values = Mapping[str, Setting]


def all_locks(locks: Mapping[str, Lock], site: Values) -> dict[str, Lock]:
    """The locks, with the keys that they imply.

    A locked table locks its keys. A locked choice of environment also locks the environment's description and
    the interpreter, which could change its meaning.
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


def merge(
    site: Values, later: Iterable[Values], locks: Mapping[str, Lock]
) -> tuple[dict[str, Setting], tuple[str, ...]]:
    """The site's values, overridden by later layers except for locked keys; and a note for each value that
    has no effect, with the reason."""
    values = dict(site)
    notes = []
    for layer in later:
        for key, setting in layer.items():
            lock = find_lock(locks, key)
            if lock is None:
                values[key] = setting
                if key == "runs_root" and not setting.is_site:
                    values.pop("runs_roots", None)
            elif key not in values or values[key].value != setting.value:
                shown = "" if isinstance(setting.value, Environment) else f" = {shown_value(setting.value)}"
                notes.append(f"{setting.origin}: {key}{shown} is ignored: {lock.words}")
    return values, tuple(notes)


def shown_value(value: Any) -> str:
    """A value as a person would write it in the config file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (frozenset, set)):
        return shown_value(sorted(value))
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(shown_value(item) for item in value)}]"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return str(value) if isinstance(value, int) else json.dumps(str(value), ensure_ascii=False)
