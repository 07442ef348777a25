"""Parse TOML that people write, with three limits that tomllib lacks, and quote its values. Pure.

tomllib's time grows with the square of the number of parts in a dotted key: 8 KiB of `a.a.a.a` take half a
second, 64 KiB half a minute. No file written by a person has such a key, so it is refused before parsing.
TOML does not allow integers over 64 bits; tomllib accepts them, but Python cannot convert them to float, nor
print more than 4,300 digits.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

MAX_CHARACTERS = 1 << 20
"""The longest file in coach has 75,000 characters; tomllib reads a million in about two seconds."""
MAX_KEY_PARTS = 64
"""The deepest key of coach has four parts."""
_INTEGERS = range(-(1 << 63), 1 << 63)
_LONG_INTEGER = re.compile(r"0x[0-9A-Fa-f_]{16,}|0o[0-7_]{22,}|0b[01_]{64,}|[0-9][0-9_]{18,}")
_BLANKS = r"[ \t]*+"
_PART = r"(?:[A-Za-z0-9_-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
_LONG_KEY = re.compile(
    rf"(?:^|[\[{{,]){_BLANKS}(?:{_PART}{_BLANKS}\.{_BLANKS}){{{MAX_KEY_PARTS}}}", re.MULTILINE
)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the parsed tables. Raises ValueError or RecursionError if the text is not TOML or over a
    limit."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"the file is too long: at most {MAX_CHARACTERS:,} characters are read")
    if found := _LONG_KEY.search(text):
        raise ValueError(f"a key has more than {MAX_KEY_PARTS} dotted parts {_place(text, found.end())}")
    table = tomllib.loads(text)
    for integer in _integers(table):
        if integer not in _INTEGERS:
            raise ValueError(f"an integer does not fit into 64 bits {_place_of(text, abs(integer))}".rstrip())
    return table


def quoted(value: Any) -> str:
    """A value of a file for a message about it: `true`, not Python's `True`."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _integers(table: dict[str, Any]) -> Iterator[int]:
    waiting: list[Any] = [table]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, int):
            yield value


def _place_of(text: str, integer: int) -> str:
    """Position of the first occurrence in tomllib's words; "" if it cannot be found."""
    for found in _LONG_INTEGER.finditer(text):
        try:
            if int(found[0], 0) == integer:
                return _place(text, found.start())
        except ValueError:
            continue
    return ""


def _place(text: str, index: int) -> str:
    """Line and column in tomllib's words."""
    line_start = text.rfind("\n", 0, index) + 1
    return f"(at line {text.count(chr(10), 0, index) + 1}, column {index - line_start + 1})"
