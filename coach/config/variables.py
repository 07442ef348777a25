"""Environment variables that set keys: `COACH_` and the key, with underscores for dots.

They let a module file, a job or a test change one value without a config file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from coach import runs
from coach.analysis.spelling.environment import expanded
from coach.config.file import Setting, absolute
from coach.config.keys import KEYS, Key, variable_of
from coach.model.errors import UserError
from coach.model.toml_schema import checked

_PREFIXES = ("COACH_LAUNCH_", "COACH_RULES_", "COACH_THRESHOLDS_")
"""An unknown variable with one of these prefixes is a misspelling."""
_THRESHOLD = re.compile(
    r"COACH_(?:RULES|THRESHOLDS)_(?P<code>[A-Z]{3}\d{3})_(?P<name>[A-Z0-9_]{1,60})", re.ASCII
)

SBATCH_KEYS = ("launch.account", "launch.partition", "launch.qos")
"""Keys that sbatch's own variables set as well, such as SBATCH_ACCOUNT."""

_BY_VARIABLE = {
    key.variable: key for key in KEYS.values() if key.variable is not None and not key.is_site_only
}

_IN_FILES_ALONE = {
    variable: key for key in KEYS.values() if (variable := variable_of(key.name)) not in _BY_VARIABLE
}


def home_values(env: Mapping[str, str]) -> dict[str, Setting]:
    """Values that COACH_HOME sets: the paths of runs and cache below it."""
    if runs.coach_home(env) is None:
        return {}
    place = _place("COACH_HOME")
    return {
        "runs_root": Setting(runs.default_runs_root(env), place),
        "cache_dir": Setting(runs.default_cache_dir(env), place),
    }


def sbatch_values(env: Mapping[str, str]) -> dict[str, Setting]:
    """Values that the user gives to sbatch by its own variables. Raises UserError that names the variable."""
    values = {}
    for name in SBATCH_KEYS:
        variable = f"SBATCH_{name.rpartition('.')[2].upper()}"
        text = env.get(variable)
        if text:
            values[name] = Setting(_checked(KEYS[name], text, variable), variable)
    return values


def is_of_sbatch(origin: str | None) -> bool:
    """True if one of sbatch's own variables set the value."""
    return origin is not None and origin.startswith("SBATCH_")


def variable_values(env: Mapping[str, str]) -> dict[str, Setting]:
    """Values of single keys that variables set. Raises UserError that names the variable."""
    values = {}
    for variable, key in _BY_VARIABLE.items():
        text = env.get(variable)
        if text and key.from_text is not None:
            place = _place(variable)
            value = _checked(key, key.from_text(text), place)
            if key.is_path:
                value = absolute(expanded(value, env, f"{place}: {key.name}"), f"{place}: {key.name}")
            values[key.name] = Setting(value, place)
    for variable in env:
        if not env[variable]:
            continue
        if variable in _IN_FILES_ALONE:
            raise _sets_nothing(variable, _IN_FILES_ALONE[variable])
        if threshold := _THRESHOLD.fullmatch(variable):
            raise _sets_no_threshold(variable, f"rules.{threshold['code']}.{threshold['name'].lower()}")
        if variable.startswith(_PREFIXES) and variable not in _BY_VARIABLE:
            near = get_close_matches(variable, _BY_VARIABLE, 1) if variable.startswith(_PREFIXES[0]) else ()
            raise UserError(
                f"{_place(variable)}: it sets no key of the config",
                f"did you mean {near[0]}?" if near else f"unset {variable}",
            )
    return values


def _checked(key: Key, value: Any, place: str) -> Any:
    return checked(key.name, key.kind, value, place)


def _sets_nothing(variable: str, key: Key) -> UserError:
    """The error for the variable of a key that only a file sets."""
    if key.is_site_only:
        return UserError(f"{_place(variable)}: only the site's file sets {key.name}", f"unset {variable}")
    return UserError(
        f"{_place(variable)}: no variable sets {key.name}", f"set {key.name} in config.toml; unset {variable}"
    )


def _sets_no_threshold(variable: str, name: str) -> UserError:
    return UserError(
        f"{_place(variable)}: no variable sets a threshold",
        f"set {name} in config.toml, where `coach config --check` knows its name; unset {variable}",
    )


def _place(variable: str) -> str:
    return f"environment variable {variable}"
