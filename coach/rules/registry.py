"""Find the rules: every module named CODE_name in a family package of coach.rules.

The packages are walked, so a new rule needs only its own file. The modules are imported on the first call, so
the first screen does not wait for regular expressions.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from coach import rules
from coach.model.errors import UserError
from coach.model.training.log import Signature
from coach.rules.base import Rule
from coach.rules.from_logs.ending_rule import REFUSED
from coach.rules.from_logs.loss_lines import FUNCTION_PROGRESS, PROGRESS
from coach.rules.from_logs.runs import MARKS
from coach.rules.thresholds import check_codes, check_threshold, nearest_hint, place_of
from coach.rules.wordings.rows import by_rule, shipped

_RULE_MODULE = re.compile(r"[a-z]{3}\d{3}_\w+")


@cache
def rule_classes() -> tuple[type[Rule], ...]:
    """All rules, sorted by code."""
    found = []
    for family in pkgutil.iter_modules(rules.__path__, "coach.rules."):
        if not family.ispkg:
            continue
        for module in pkgutil.iter_modules(import_module(family.name).__path__):
            if _RULE_MODULE.fullmatch(module.name):
                found += _rules_of(f"{family.name}.{module.name}")
    return tuple(sorted(found, key=lambda rule: rule.code))


def _rules_of(module_name: str) -> list[type[Rule]]:
    return [
        value
        for value in vars(import_module(module_name)).values()
        if isinstance(value, type) and issubclass(value, Rule) and value.__module__ == module_name
    ]


def build(
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    muted: Iterable[str] = (),
    origins: Mapping[str, str] = MappingProxyType({}),
    added: Iterable[Signature] = (),
) -> tuple[Rule, ...]:
    """The rules that are not muted, with the config's thresholds, the shipped wordings and `added` ones.

    `origins` (Settings.origins) provides file and line for error messages. Raises UserError for a code or a
    threshold that does not exist.
    """
    thresholds = thresholds or {}
    muted = frozenset(muted)
    by_code = {rule.code: rule for rule in rule_classes()}
    check_codes(sorted(muted), by_code, "rules.mute", place_of(origins, "rules.mute"))
    for code, values in thresholds.items():
        check_codes([code], by_code, f"rules.{code}", place_of(origins, f"rules.{code}"))
        for name, value in values.items():
            key = f"rules.{code}"
            check_threshold(by_code[code], name, value, place_of(origins, f"{key}.{name}", key))
    rows, own = shipped(), by_rule(added)
    return tuple(
        rule(thresholds.get(code), (*rows.get(code, ()), *own.get(code, ())))
        for code, rule in by_code.items()
        if code not in muted
    )


def find(code: str) -> type[Rule]:
    """The rule with this code or name; upper and lower case are equal. Raises UserError that names the
    nearest one."""
    wanted = code.casefold()
    for rule in rule_classes():
        if wanted in (rule.code.casefold(), rule.name.casefold(), rule.cause.casefold()):
            return rule
    names = [name for rule in rule_classes() for name in (rule.code, rule.name)]
    raise UserError(f"there is no rule {code!r}", nearest_hint(code, names))


def signatures(rules: Iterable[Rule]) -> tuple[Signature, ...]:
    """The patterns that the log source searches for these rules."""
    return (
        *(each for rule in rules for each in (*rule.wordings, *rule.signatures)),
        PROGRESS,
        FUNCTION_PROGRESS,
        REFUSED,
        *MARKS,
    )
