"""Takes the keys of a TOML file one by one. An error names the file, the line and the key, and says what is
wrong and what would be right.

Each kind of table has its own module (recipe_file.py, drill_table.py). They share this reader so that all
errors have one form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from coach.model.errors import UserError
from coach.model.toml_text import parse_toml, quoted


@dataclass(frozen=True, slots=True)
class TableKey:
    """A key that a table may have, described for its author. Error messages and the reference use the
    texts."""

    takes: str
    """The valid values, in words that follow "expected"."""
    says: str
    """The key's meaning, in one sentence."""
    is_needed: bool = False


Keys = Mapping[str, TableKey]


def parse_table(text: str) -> dict[str, Any]:
    """TOML as nested tables. Raises ValueError for text that is not TOML."""
    try:
        return parse_toml(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


class TableReader:
    """Takes values from one parsed file. A dotted key names its table too."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines = text.splitlines()

    def number(self, table: Mapping[str, Any], key: str) -> float | None:
        value: float | None = self.get(table, key, (int, float), "a number", None)
        return value

    def matching(self, table: Mapping[str, Any], key: str, pattern: re.Pattern[str], wanted: str) -> str:
        value: str = self.get(table, key, str, wanted)
        if not pattern.fullmatch(value):
            raise self.error(key, f"{key} = {quoted(value)}: expected {wanted}")
        return value

    def get(
        self,
        table: Mapping[str, Any],
        dotted: str,
        kind: type | tuple[type, ...],
        wanted: str,
        default: Any = ...,
    ) -> Any:
        """The value of a key. A key without a default is required."""
        *tables, key = dotted.split(".")
        if key not in table:
            if default is ...:
                raise self.error(".".join(tables), f"the key {dotted} is missing: expected {wanted}")
            return default
        value = table[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(dotted, f"{dotted} = {quoted(value)}: expected {wanted}")
        return value

    def check_keys(self, where: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
        for key in table:
            if key not in known:
                dotted = f"{where}.{key}" if where else key
                near = get_close_matches(key, known, 1)
                hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
                raise self.error(dotted, f"unknown key {dotted}", hint)

    def error(self, dotted: str, problem: str, hint: str | None = None) -> UserError:
        return UserError(f"{self.at(dotted)}: {problem}", hint)

    def at(self, dotted: str) -> str:
        """FILE:LINE of a key: the first line that assigns it after its table's heading."""
        if not dotted:
            return str(self.path)
        *tables, leaf = dotted.split(".")
        heading = f"[{'.'.join(tables)}]"
        headings = [number for number, line in enumerate(self._lines) if line.strip() == heading]
        start = headings[0] + 1 if tables and headings else 0
        named = (leaf, dotted) if headings or not tables else (dotted,)
        for number, line in enumerate(self._lines[start:], start):
            stripped = line.strip()
            if stripped.split("=")[0].strip() in named or stripped == f"[{dotted}]":
                return f"{self.path}:{number + 1}"
            if tables and headings and stripped.startswith("["):
                break
        if headings:
            return f"{self.path}:{headings[0] + 1}"
        return self.at(".".join(tables))  # the key stands in its parent's inline table, or nowhere

    def words(
        self, table: Mapping[str, Any], key: str, pattern: re.Pattern[str], wanted: str
    ) -> tuple[str, ...]:
        words = self.get(table, key, list, wanted, [])
        if not all(isinstance(word, str) and pattern.fullmatch(word) for word in words):
            raise self.error(key, f"{key} = {words!r}: expected {wanted}")
        return tuple(words)
