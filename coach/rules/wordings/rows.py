"""Read and check tables of log wordings in TOML: the shipped ones, and files that a site or a user adds.

A file holds groups. A group names the rule, the kind of hit, and the settings that its rows share. The
shipped rows are read from `compiled.json` (made by `python -m coach.rules.wordings.compile`), because parsing
a thousand rows of TOML takes longer than reading most logs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any

from coach.model.errors import UserError
from coach.model.judging.finding import Fix
from coach.model.toml_text import parse_toml
from coach.model.training.log import Signature
from coach.rules.advice.circumstances import NEEDS, NOT
from coach.rules.wordings.literals import literals_of

COMPILED = "compiled.json"
_GROUP_KEYS = ("rule", "kind", "head", "unless", "any_level", "in_error", "reads_source", "remedy", "wording")
_FORM = "see docs/how-to for the form"
_ROW_KEYS = ("pattern", "example", "seen", "source", "bare", "cause", "remedy")
_FIX_KEYS = ("title", "changes", "command", "changes_learning", "needs")


@dataclass(frozen=True, slots=True)
class Wording:
    """One row: a pattern, a line that it matches, and the place where this line was seen."""

    signature: Signature
    example: str
    seen: str | None
    """A recording of this project, or a public URL."""
    source: str | None
    """The source file that prints it, with package and version."""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The contents of one file."""

    wordings: tuple[Wording, ...]
    thresholds: Mapping[str, Mapping[str, float]]
    """Rule code → threshold name → value. Only files of sites and users have them."""


def parse(text: str, file: str) -> tuple[Wording, ...]:
    """The rows of a file. Raises UserError with file, row and correction."""
    return parse_file(text, file).wordings


def parse_file(text: str, file: str) -> RuleFile:
    """Rows and thresholds of a file. Raises UserError with file, row and correction."""
    try:
        document = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: {error}", "it must be TOML with [[group]] and [[group.wording]]") from error
    _check_keys(document, ("group", "remedies", "thresholds"), file)
    return RuleFile(_groups(document, file), _thresholds(document.get("thresholds", {}), file))


def _thresholds(tables: Any, file: str) -> Mapping[str, Mapping[str, float]]:
    place = f"{file}: thresholds"
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise UserError(f"{place}: it must hold a table for each rule", "write [thresholds.GPU005]")
    for code, table in tables.items():
        for name, value in table.items():
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise UserError(f"{place}.{code}.{name}: {value!r} is not a number", f"write {name} = 0.5")
    return {code: {name: float(value) for name, value in table.items()} for code, table in tables.items()}


def _groups(document: Mapping[str, Any], file: str) -> tuple[Wording, ...]:
    remedies = _remedies(document.get("remedies", {}), file)
    groups = document.get("group", [])
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise UserError(f"{file}: group must be a list of tables", "write [[group]]")
    return tuple(
        row
        for number, group in enumerate(groups, 1)
        for row in _group(group, f"{file}: group {number}", remedies)
    )


def _remedies(tables: Any, file: str) -> Mapping[str, tuple[Fix, ...]]:
    """Name → fixes, the likeliest first. Rows name the one that fits them."""
    if not isinstance(tables, dict) or not all(isinstance(fixes, list) for fixes in tables.values()):
        raise UserError(
            f"{file}: remedies must hold a list of tables for each name", "write [[remedies.NAME]]"
        )
    return {
        name: tuple(_fix(fix, f"{file}: remedies.{name}, fix {at}") for at, fix in enumerate(fixes, 1))
        for name, fixes in tables.items()
    }


def _fix(table: Any, place: str) -> Fix:
    if not isinstance(table, dict):
        raise UserError(f"{place}: it is no table", "write [[remedies.NAME]] with a title")
    _check_keys(table, _FIX_KEYS, place)
    changes, needs = table.get("changes", {}), table.get("needs", [])
    if not isinstance(changes, dict):
        raise UserError(f"{place}: changes is no table", 'write changes = { precision = "bf16" }')
    if not isinstance(needs, list) or not all(
        isinstance(need, str) and need.removeprefix(NOT) in NEEDS for need in needs
    ):
        raise UserError(
            f"{place}: needs {needs!r} has one that coach cannot see",
            f"known are: {', '.join(sorted(NEEDS))}; with {NOT!r} before one, the opposite",
        )
    return Fix(
        title=_text(table, "title", place),
        changes=changes,
        command=_text_or_none(table, "command", place),
        changes_learning=_flag(table, "changes_learning", place),
        needs=tuple(needs),
    )


def _group(
    group: Mapping[str, Any], place: str, remedies: Mapping[str, tuple[Fix, ...]]
) -> Iterable[Wording]:
    _check_keys(group, _GROUP_KEYS, place)
    rule, kind = _text(group, "rule", place), _text(group, "kind", place)
    place = f"{place} ({rule} {kind})"
    rows = group.get("wording")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{place}: it has no wording", "write [[group.wording]] with pattern and example")
    for at, row in enumerate(rows, 1):
        yield _row(row, group, f"{place}, wording {at}", remedies)


def _row(
    row: Mapping[str, Any], group: Mapping[str, Any], place: str, remedies: Mapping[str, tuple[Fix, ...]]
) -> Wording:
    _check_keys(row, _ROW_KEYS, place)
    pattern, example = _text(row, "pattern", place), _text(row, "example", place)
    seen, source = _text_or_none(row, "seen", place), _text_or_none(row, "source", place)
    if seen is None and source is None:
        raise UserError(
            f"{place}: give seen or source, the place where the wording occurred",
            "seen = an address or a recording; source = a framework's file and version",
        )
    remedy = _text_or_none(row, "remedy", place) or _text_or_none(group, "remedy", place)
    if remedy is not None and remedy not in remedies:
        raise UserError(
            f"{place}: there is no remedy {remedy!r}", f"write [[remedies.{remedy}]] with a title"
        )
    whole = (_text_or_none(group, "head", place) or "") + pattern
    unless = _text_or_none(group, "unless", place)
    _compile(unless or "", "unless", place)
    _compile(whole, "pattern", place)
    try:
        literals = literals_of(whole)
    except ValueError as error:
        raise UserError(f"{place}: pattern {pattern!r}: {error}", _FORM) from error
    signature = Signature(
        rule=_text(group, "rule", place),
        name=_text(group, "kind", place),
        literals=literals,
        pattern=whole,
        unless=unless,
        is_heeded=not _flag(group, "any_level", place),
        in_error=_flag(group, "in_error", place) and not _flag(row, "bare", place),
        reads_source=_flag(group, "reads_source", place),
        cause=_text_or_none(row, "cause", place),
        fixes=remedies[remedy] if remedy is not None else (),
    )
    return Wording(signature, example, seen, source)


def _compile(pattern: str, key: str, place: str) -> None:
    """Raise UserError if the text of this key is no regular expression."""
    try:
        re.compile(pattern)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise UserError(f"{place}: {key} {pattern!r}: {error}", _FORM) from error


def _check_keys(table: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    strange = next((key for key in table if key not in known), None)
    if strange is not None:
        raise UserError(f"{place}: {strange} is not known here", f"known are: {', '.join(known)}")


def _text(table: Mapping[str, Any], key: str, place: str) -> str:
    value = _text_or_none(table, key, place)
    if not value:
        raise UserError(f"{place}: {key} is missing", f'write {key} = "…"')
    return value


def _text_or_none(table: Mapping[str, Any], key: str, place: str) -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise UserError(f"{place}: {key} is not text", f"write {key} = '…'")
    return value


def _flag(table: Mapping[str, Any], key: str, place: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise UserError(f"{place}: {key} is neither true nor false", f"write {key} = true")
    return value


def shipped_files() -> tuple[Traversable, ...]:
    """The tables of the project, by name."""
    return tuple(sorted((f for f in files(__package__).iterdir() if f.name.endswith(".toml")), key=_name))


def _name(file: Traversable) -> str:
    return file.name


def digest(tables: Iterable[Traversable]) -> str:
    """A digest of the tables' contents."""
    found = hashlib.sha256()
    for table in tables:
        found.update(table.read_bytes() + b"\0")
    return found.hexdigest()


@cache
def shipped() -> Mapping[str, tuple[Signature, ...]]:
    """Rule code → signatures of its rows, in the tables' order. An installed coach has no tables, only
    `compiled.json`."""
    tables = shipped_files()
    compiled = json.loads(files(__package__).joinpath(COMPILED).read_bytes())
    if not tables or compiled["digest"] == digest(tables):
        rows = [_of_json(row) for row in compiled["rows"]]
    else:
        rows = [row.signature for table in tables for row in parse(table.read_text("utf-8"), table.name)]
    return MappingProxyType(by_rule(rows))


def _of_json(row: Mapping[str, Any]) -> Signature:
    fixes = tuple(Fix(**{**fix, "needs": tuple(fix.get("needs", ()))}) for fix in row.get("fixes", ()))
    return Signature(**{**row, "literals": tuple(row["literals"]), "fixes": fixes})


def by_rule(rows: Iterable[Signature]) -> Mapping[str, tuple[Signature, ...]]:
    """The rows of each rule, in their order."""
    found: dict[str, list[Signature]] = {}
    for row in rows:
        found.setdefault(row.rule, []).append(row)
    return {rule: tuple(signatures) for rule, signatures in found.items()}
