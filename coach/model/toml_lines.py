"""Finds the line of each key in a TOML file.

tomllib returns values without positions. An error in a file of hundreds of lines needs its line, and so does
a lock that a user asks about. tomllib has already accepted the text, so this scanner only needs to tell keys
from values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

KeyPath = tuple[str, ...]

_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r"""|(?P<key>"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
    r"|\#[^\n]*"
    r"|[\[\]{}=\n]",
    re.DOTALL,
)
"""A string, a word, a comment, or a sign that begins or ends a key, a heading or a value."""


def key_lines(text: str) -> Mapping[KeyPath, int]:
    """Path of each key and each table → its line, counted from 1. A key in an inline table has no line of its
    own, only the table's key has."""
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    parts: list[str] = []
    is_heading = is_value = False
    line, depth = 1, 0
    for token in _TOKEN.finditer(f"{text}\n"):
        sign = token[0]
        if is_value:  # to the end of its line at which no bracket is open
            depth += (sign in ("[", "{")) - (sign in ("]", "}"))
            is_value = depth > 0 or sign != "\n"
        elif sign in ("=", "\n"):
            path = tuple(parts) if is_heading else (*table, *parts)
            for length in range(1, len(path) + 1 if parts else 0):
                found.setdefault(path[:length], line)
            table = path if is_heading else table
            parts, is_heading, is_value = [], False, sign == "="
        elif sign == "[":
            is_heading = True
        elif token["key"] is not None:
            parts.append(_unquoted(sign))
        line += sign.count("\n")
    return found


def _unquoted(key: str) -> str:
    """A part of a key without its quotes, and with its escapes replaced."""
    if key.startswith("'"):
        return key[1:-1]
    try:
        return str(json.loads(key)) if key.startswith('"') else key
    except ValueError:
        return key[1:-1]
