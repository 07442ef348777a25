"""Makes other people's text harmless for a terminal: for commands, screens and node code, by one function.

With two functions, one could miss what the other catches. The standard streams of commands and of node code
are `guarded`, so that no single print can be forgotten. Python >= 3.9, standard library only.

Harmless text also has a known width: terminals disagree about the width of some characters, and all that
follows them, including the next column, would shift.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import chain
from typing import Any, TextIO

_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Mc", "Me"})
"""Controls, bidi marks, joiners, surrogates, unassigned code points, line ends, and marks that take a cell in
some terminals only."""
_DISPUTED = frozenset(
    map(
        chr,
        chain(
            range(0xFE00, 0xFE10),  # variation selectors
            range(0xE0100, 0xE01F0),
            range(0x1F1E6, 0x1F200),  # halves of flags
            range(0x1F3FB, 0x1F400),  # skin tones
            range(0x1160, 0x1200),  # parts of Korean syllables, and their fillers
            range(0xD7B0, 0xD800),
            (0x3164, 0xFFA0, 0x16FE4, 0x034F),
            range(0x2630, 0x2638),  # wide since Unicode 16
            range(0x268A, 0x2690),
            range(0x4DC0, 0x4E00),
            range(0x1D300, 0x1D380),
        ),
    )
)
_EMOJI_STYLES = "\ufe0e\ufe0f"
"""Behind a symbol they only choose its colour, as in gloo's errors: there they are left out."""
_MAX_MARKS = 2
"""Combining marks allowed on one letter: more of them cover the lines above and below."""
_MARK = "Mn"
_UNSHOWABLE = "\ufffd"
_SPACING = "\n\t"
_PARTS = re.compile(f"([{_SPACING}])")


def printable(text: str) -> str:
    """Replace line ends, ESC, bidi marks and bytes that are not UTF-8 by visible signs."""
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    num_marks = _MAX_MARKS  # a mark without a letter would stand on coach's own text before it
    category = ""
    for char in text:
        if char in _EMOJI_STYLES and category == "So":
            continue
        category = unicodedata.category(char)
        num_marks = num_marks + 1 if category == _MARK else 0
        shown.append(_UNSHOWABLE if num_marks > _MAX_MARKS else _visible(char, category))
    return "".join(shown)


def guarded(stream: Any) -> Any:
    """The stream, or one that writes only harmless text to it."""
    return stream if isinstance(stream, HarmlessStream) else HarmlessStream(stream)


class HarmlessStream:
    """A text stream that writes only harmless text, in lines. ASCII without controls, such as JSON, stays as
    it is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(text if text.isprintable() else "".join(map(_harmless, _PARTS.split(text))))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _harmless(part: str) -> str:
    return part if part.isprintable() or part in _SPACING else printable(part)


def _visible(char: str, category: str) -> str:
    code = ord(char)
    if char == "\t" or category == "Zs":
        return " "
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return _UNSHOWABLE if category in _HARMFUL or char in _DISPUTED else char
