"""remembered.toml: answers given to a launch, kept so that the next launch need not ask.

coach writes this file, with one table per cluster, because an account of one cluster means nothing on
another. It overrides the user's own file: the answers are newer and were given for this cluster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coach.config.file import Setting, read_config
from coach.config.keys import LAUNCH_FIELDS, kind_of
from coach.model.errors import UserError
from coach.model.toml_schema import TomlFile, checked

FILE_NAME = "remembered.toml"
_TABLE = "launch"
_HEAD = "# Written by coach: remembered answers for launches, by cluster. Delete a line to be asked again.\n"

Remembered = dict[str, dict[str, Setting]]
"""Cluster → dotted key → answer."""


def can_be_remembered(key: str) -> bool:
    """True if a launch may remember this key: a single value of [launch]."""
    return key in LAUNCH_FIELDS and key != "launch.setup"


def read_remembered(path: Path) -> tuple[Remembered, tuple[str, ...]]:
    """All remembered answers, and the errors in the file. An invalid file does not stop coach."""
    try:
        text = read_config(path, os.geteuid())
        file = TomlFile(path, text or "")
    except UserError as problem:
        return {}, (f"{problem}; the file is ignored",)
    found: Remembered = {}
    problems = []
    for cluster, table in file.table.items():
        answers = table.get(_TABLE) if isinstance(table, dict) else None
        for name, value in answers.items() if isinstance(answers, dict) else ():
            key, place = f"{_TABLE}.{name}", file.at(f"{cluster}.{_TABLE}.{name}")
            kind = kind_of(key)
            try:
                if kind is None or not can_be_remembered(key):
                    raise UserError(f"{place}: {key} cannot be remembered")
                answer = checked(key, kind, value, place)
                found.setdefault(cluster, {})[key] = Setting(answer, place)
            except UserError as problem:
                problems.append(f"{problem}; it is ignored")
    return found, tuple(problems)


def remembered_text(answers: Mapping[str, Mapping[str, Any]]) -> str:
    """The file's text for these answers: cluster → dotted key → value."""
    parts = [_HEAD]
    for cluster, values in answers.items():
        if values:
            parts.append(f"\n[{_toml_string(cluster)}.{_TABLE}]\n")
            parts += [f"{key.partition('.')[2]} = {_toml(value)}\n" for key, value in values.items()]
    return "".join(parts)


def _toml(value: Any) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _toml_string(str(value))


def _toml_string(text: str) -> str:
    # TOML accepts JSON's escapes. JSON leaves DEL unescaped, which TOML forbids.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
