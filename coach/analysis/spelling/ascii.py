"""Converts text for a terminal that shows only ASCII: each sign becomes one with a similar look or the same
meaning.

Every character keeps its width in cells, so that columns stay where they are.
"""

from __future__ import annotations

import re
import unicodedata

from coach.analysis.spelling.printable import display_width

_OTHERS = re.compile(r"[^\x00-\x7f]+")
_SIGNS = {
    "✖": "x",
    "✓": "+",
    "▲": "!",
    "●": "*",
    "○": "o",
    "■": "#",
    "□": "o",
    "▸": ">",
    "▹": ">",
    "›": ">",
    "‹": "<",
    "→": ">",
    "←": "<",
    "↑": "^",
    "↓": "v",
    "…": "~",
    "–": "-",
    "—": "-",
    "−": "-",
    "·": "-",
    "•": "*",
    "×": "x",
    "±": "~",
    "≤": "<",
    "≥": ">",
    "≈": "~",
    "°": "'",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
}
_BLOCKS = " .:-=+*#@"
"""Characters from empty to full, for bars, heat maps and the dots of a curve."""
_EIGHTHS = "▁▂▃▄▅▆▇█"
_SHADES = "░▒▓"
_NUM_DOTS = 8
_MOST_KNOWN = 4096


class AsciiText:
    """Converts text, and caches each character: a screen has few different characters, each many times."""

    def __init__(self) -> None:
        self._known = dict(_SIGNS)

    def of(self, text: str) -> str:
        """The text in ASCII, with the same width in cells."""
        return text if text.isascii() else _OTHERS.sub(self._replace, text)

    def _replace(self, found: re.Match[str]) -> str:
        return "".join(map(self._sign, found[0]))

    def _sign(self, character: str) -> str:
        sign = self._known.get(character)
        if sign is None:
            if len(self._known) > _MOST_KNOWN:
                self._known = dict(_SIGNS)
            sign = self._known[character] = _ascii(character)
        return sign


def _ascii(character: str) -> str:
    code = ord(character)
    if 0x2500 <= code < 0x2580:
        return _line(unicodedata.name(character, ""))
    if 0x2580 <= code < 0x25A0:
        return _block(character)
    if 0x2800 <= code < 0x2900:
        return _dots((code - 0x2800).bit_count())
    width = display_width(character)
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return plain if len(plain) == width and plain.isprintable() else "?" * width


def _dots(count: int) -> str:
    """The character of a cell of a curve, by its number of dots; one dot is already visible."""
    return _BLOCKS[max(min(count, 1), count * (len(_BLOCKS) - 1) // _NUM_DOTS)]


def _line(name: str) -> str:
    """The ASCII character of a line-drawing character, by its Unicode name."""
    is_flat = "HORIZONTAL" in name or name.endswith((" LEFT", " RIGHT"))
    is_upright = "VERTICAL" in name or name.endswith((" UP", " DOWN"))
    return "+" if " AND " in name or is_flat == is_upright else "-" if is_flat else "|"


def _block(character: str) -> str:
    """The ASCII character for a part of a bar or scroll bar."""
    if character in _EIGHTHS:
        return _BLOCKS[_EIGHTHS.index(character) + 1]
    if character in _SHADES:
        return _BLOCKS[2 * _SHADES.index(character) + 2]
    name = unicodedata.name(character, "")
    return "|" if "LEFT" in name or "RIGHT" in name else "="
