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
from pathlib import Path
from types import MappingProxyType
from typing import Any

from coach.model.judging.finding import Fix
from coach.model.toml_schema import (
    FLAG,
    NUMBER,
    STRING,
    TABLE,
    Key,
    Kind,
    Schema,
    TomlFile,
    WrongValueError,
    fulfilling,
    list_of,
)
from coach.model.training.log import Signature
from coach.rules.advice.circumstances import NEEDS, NOT
from coach.rules.wordings.literals import literals_of

COMPILED = "compiled.json"


def _need(value: Any) -> str:
    need: str = STRING(value)
    if need.removeprefix(NOT) not in NEEDS:
        known = ", ".join(sorted(NEEDS))
        raise WrongValueError(
            f"coach cannot see {need!r}", f"known are: {known}; with {NOT!r} before one, the opposite"
        )
    return need


def _expression(value: Any) -> str:
    """Text that is a regular expression."""
    try:
        re.compile(STRING(value))
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise WrongValueError(str(error), "a regular expression of Python's module re") from None
    return str(value)


_EXPRESSION = Kind("a regular expression", _expression)
_TEXT = fulfilling(STRING, bool, "text")
_FILE: Schema = {
    "group": Key(list_of(TABLE), "Rows that share their settings.", default=()),
    "remedies": Key(TABLE, "Name → its fixes, the likeliest first.", default={}),
    "thresholds": Key(TABLE, "Rule code → values of its thresholds.", default={}),
}
_GROUP: Schema = {
    "rule": Key(_TEXT, "The code of the rule that the rows serve.", is_needed=True),
    "kind": Key(_TEXT, "The kind of hit that the rule asks for.", is_needed=True),
    "head": Key(STRING, "Stands before each pattern.", default=""),
    "unless": Key(_EXPRESSION, "A line that it matches does not count."),
    "any_level": Key(FLAG, "Count lines below level ERROR, too.", default=False),
    "in_error": Key(FLAG, "Search behind the type of an exception.", default=False),
    "reads_source": Key(FLAG, "Read the source lines of a traceback, too.", default=False),
    "remedy": Key(_TEXT, "The remedy of its rows."),
    "wording": Key(fulfilling(list_of(TABLE), bool, "[[group.wording]]"), "The rows.", is_needed=True),
}
_ROW: Schema = {
    "pattern": Key(_TEXT, "Its named groups are the fields of a hit.", is_needed=True),
    "example": Key(_TEXT, "A line that it matches.", is_needed=True),
    "seen": Key(STRING, "A recording of this project, or a public address."),
    "source": Key(STRING, "The file that prints it, with package and version."),
    "bare": Key(FLAG, "Search the whole line in spite of in_error.", default=False),
    "cause": Key(_TEXT, "A more exact cause than the rule's."),
    "remedy": Key(_TEXT, "The remedy that fits this line."),
}
_FIX: Schema = {
    "title": Key(_TEXT, "What to do.", is_needed=True),
    "changes": Key(TABLE, "Changes of the launch.", default={}),
    "command": Key(STRING, "A command that does it."),
    "changes_learning": Key(FLAG, "True if it changes the result of the training.", default=False),
    "needs": Key(list_of(Kind("a need", _need)), "What it presupposes.", default=()),
}


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
    toml = TomlFile(Path(file), text)
    values = toml.values("", toml.table, _FILE)
    remedies = {
        name: tuple(
            Fix(**toml.values(f"remedies.{name}[{at}]", fix, _FIX))
            for at, fix in enumerate(toml.check(f"remedies.{name}", list_of(TABLE), fixes), 1)
        )
        for name, fixes in values["remedies"].items()
    }
    groups = enumerate(values["group"], 1)
    rows = tuple(row for at, group in groups for row in _rows(toml, f"group[{at}]", group, remedies))
    thresholds = {
        code: {
            name: float(toml.check(f"thresholds.{code}.{name}", NUMBER, value))
            for name, value in toml.check(f"thresholds.{code}", TABLE, table).items()
        }
        for code, table in values["thresholds"].items()
    }
    return RuleFile(rows, thresholds)


def _rows(
    file: TomlFile, where: str, table: Mapping[str, Any], remedies: Mapping[str, tuple[Fix, ...]]
) -> Iterable[Wording]:
    group = file.values(where, table, _GROUP)
    for at, each in enumerate(group["wording"], 1):
        place = f"{where}.wording[{at}]"
        row = file.values(place, each, _ROW)
        if row["seen"] is None and row["source"] is None:
            raise file.error(
                place,
                f"{place}: give seen or source, the place where the wording occurred",
                "seen = an address or a recording; source = a framework's file and version",
            )
        remedy = row["remedy"] or group["remedy"]
        if remedy is not None and remedy not in remedies:
            raise file.error(
                place, f"{place}: there is no remedy {remedy!r}", f"write [[remedies.{remedy}]] with a title"
            )
        pattern = file.check(f"{place}.pattern", _EXPRESSION, group["head"] + row["pattern"])
        try:
            literals = literals_of(pattern)
        except ValueError as error:
            raise file.error(place, f"{place}.pattern = {pattern!r}: {error}") from error
        signature = Signature(
            rule=group["rule"],
            name=group["kind"],
            literals=literals,
            pattern=pattern,
            unless=group["unless"],
            is_heeded=not group["any_level"],
            in_error=group["in_error"] and not row["bare"],
            reads_source=group["reads_source"],
            cause=row["cause"],
            fixes=remedies[remedy] if remedy is not None else (),
        )
        yield Wording(signature, row["example"], row["seen"], row["source"])


def shipped_files() -> tuple[Traversable, ...]:
    """The tables of the project, by name."""
    tables = (file for file in files(__package__).iterdir() if file.name.endswith(".toml"))
    return tuple(sorted(tables, key=lambda file: file.name))


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
