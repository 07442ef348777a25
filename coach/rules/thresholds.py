"""Check what a config says about rules against the rules there are.

Without this check a misspelt code or threshold would silently change nothing. The error names its place and
the nearest valid name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from coach.model.errors import UserError
from coach.rules.base import Rule

LARGEST = 1e15
"""No threshold may be larger: rules count values, seconds and MiB by it, and take powers of it."""


def check_codes(codes: Iterable[str], known: Iterable[str], key: str, place: str) -> None:
    """Raise UserError for a rule code that does not exist. `key` is the config's key, `place` its file and
    line."""
    names = sorted(known)
    for code in codes:
        if code not in names:
            raise UserError(f"{place}: {key}: there is no rule {code!r}", nearest_hint(code, names))


def check_threshold(rule: type[Rule], name: str, value: float, place: str) -> None:
    """Raise UserError if the rule has no threshold of this name, or cannot use the value."""
    by_name = {threshold.name: threshold for threshold in rule.thresholds}
    key = f"rules.{rule.code}.{name}"
    if name not in by_name:
        raise UserError(f"{place}: {key}: {rule.code} has no threshold {name!r}", nearest_hint(name, by_name))
    least = by_name[name].at_least
    if value < least or math.isnan(value):
        expected = f"at least {least:g}" if least else "not below zero"
        raise UserError(f"{place}: {key} = {value:g}: expected a number, {expected}")
    if value > LARGEST:
        raise UserError(f"{place}: {key} = {value:g}: expected a number, at most {LARGEST:g}")


def in_force(rules: Iterable[Rule]) -> dict[str, float]:
    """`RULE.name` → the value in use."""
    return {f"{rule.code}.{name}": value for rule in rules for name, value in rule.values.items()}


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """A hint with the nearest known name, or with all names."""
    names = list(known)
    by_folded = {known_name.casefold(): known_name for known_name in names}
    # Pad the number of a code: NUM01 means NUM001, although by spelling it is as close to NUM010.
    padded = re.sub(r"^([a-z]{3})-?0*(\d{1,3})$", lambda code: f"{code[1]}{int(code[2]):03}", name.casefold())
    near = [padded] if padded in by_folded else get_close_matches(name.casefold(), by_folded, 1)
    if near:
        return f"did you mean {by_folded[near[0]]}?"
    return f"known: {', '.join(names)}" if names else "it has none"


def place_of(origins: Mapping[str, str], *keys: str) -> str:
    """`FILE:LINE` where the first of these dotted keys was set."""
    return next((origins[key] for key in keys if key in origins), "config")
