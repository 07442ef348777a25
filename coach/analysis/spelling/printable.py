"""Measure and cut text that was made harmless for a terminal."""

from __future__ import annotations

import unicodedata

from coach.harmless import printable as printable


def display_width(text: str) -> int:
    """Terminal cells of a text made by `printable`: wide characters take two, marks none."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def cut(text: str, width: int) -> str:
    """At most `width` cells; an ellipsis marks a cut."""
    if display_width(text) <= width:
        return text
    left, kept = width - 1, []
    for char in text:
        left -= _width(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept) + "…"


def _width(char: str) -> int:
    if unicodedata.category(char) == "Mn":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
