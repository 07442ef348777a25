"""Finds the line of each key in a TOML file.

tomllib returns values without positions. An error in a file of hundreds of lines needs its line, and so does
a lock that a user asks about. tomllib has already accepted the text, so this parser only needs to tell keys
from values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

KeyPath = tuple[str, ...]

_KEY_PART = re.compile(
    r"""\s*(?:"(?P<basic>(?:[^"\\\n]|\\.)*)"|'(?P<literal>[^'\n]*)'|(?P<bare>[A-Za-z0-9_-]+))\s*"""
)
_STRINGS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r'"""(?:[^\\]|\\.)*?"{3,5}',
        r"'''.*?'{3,5}",
        r'"(?:[^"\\\n]|\\.)*"',
        r"'[^'\n]*'",
    )
)


def key_lines(text: str) -> Mapping[KeyPath, int]:
    """Path of each key and each table → its line, counted from 1. A key in an inline table has the line of
    the table's key."""
    return _Scanner(text).lines()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line, self._counted_to = 1, 0
        self._found: dict[KeyPath, int] = {}

    def lines(self) -> Mapping[KeyPath, int]:
        table: KeyPath = ()
        while self._skip_blank():
            line = self._line_here()
            if self._text[self._at] == "[":
                while self._at < len(self._text) and self._text[self._at] == "[":
                    self._at += 1
                table = self._key_path()
                self._note(table, line)
                self._skip_to_end_of_line()
            else:
                path = table + self._key_path()
                self._note(path, line)
                self._at += 1  # the equals sign
                self._skip_value()
        return self._found

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted_to, self._at)
        self._counted_to = self._at
        return self._line

    def _note(self, path: KeyPath, line: int) -> None:
        for length in range(1, len(path) + 1):
            self._found.setdefault(path[:length], line)

    def _skip_blank(self) -> bool:
        """Skip to the next key or heading. Returns False if there is none."""
        while self._at < len(self._text):
            if self._text[self._at] == "#":
                self._skip_to_end_of_line()
            elif self._text[self._at].isspace():
                self._at += 1
            else:
                return True
        return False

    def _key_path(self) -> KeyPath:
        parts: list[str] = []
        while match := _KEY_PART.match(self._text, self._at):
            self._at = match.end()
            basic = match["basic"]
            parts.append(_unescaped(basic) if basic is not None else match["literal"] or match["bare"] or "")
            if self._text[self._at : self._at + 1] != ".":
                break
            self._at += 1
        if not parts:
            self._at += 1  # always advance, whatever the character is
        return tuple(parts)

    def _skip_value(self) -> None:
        """Skip a value: to the end of its line at which no bracket and no string is open."""
        depth = 0
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in "\"'":
                self._skip_string()
                continue
            if char == "#":
                self._skip_to_end_of_line()
                continue
            if char == "\n" and depth == 0:
                return
            depth += (char in "[{") - (char in "]}")
            self._at += 1

    def _skip_string(self) -> None:
        for pattern in _STRINGS:
            if match := pattern.match(self._text, self._at):
                self._at = match.end()
                return
        self._at += 1

    def _skip_to_end_of_line(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end


def _unescaped(text: str) -> str:
    try:
        value = json.loads(f'"{text}"')
    except ValueError:
        return text
    return value if isinstance(value, str) else text
