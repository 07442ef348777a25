"""Find the lines of a log that are worth decoding: those that contain a literal of a signature.

Pure: bytes in, offsets out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick, Implementation

from coach.model.training.log import Signature

_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")
_NO_DIGIT_MEANT = re.compile(r"(?<!\\)\{\d*,?\d*\}|\(\?P<\w+>|\\u(?!00)[0-9a-fA-F]{4}")
_DIGIT_MEANT = re.compile(r"[0-9]|\(\?P=")
_KIND = bytes.maketrans(b"123456789", b"000000000")


@cache
def is_digit_blind(pattern: str) -> bool:
    """True if a pattern treats all digits alike: it names no digit and has no back-reference."""
    words = _CLASS.sub(lambda found: found[0].replace("0-9", ""), pattern)
    return not _DIGIT_MEANT.search(_NO_DIGIT_MEANT.sub("", words))


class Block(NamedTuple):
    """The lines of a piece of log that contain literals. A line is identified by its offset."""

    text: bytes
    """All lines end with a newline."""
    places: dict[int, list[int]]
    """Index of a signature → the lines that contain one of its literals, ascending."""
    failed: dict[int, set[int]]
    """Line → the signatures that do not match it. Most lines of a log differ only in their digits: such lines
    are one kind and share one set, which the scanner fills."""

    def line(self, place: int) -> bytes:
        return self.text[place : self.text.find(b"\n", place)]


@lru_cache(maxsize=4)
class LineFilter:
    """Searches for the literals of all signatures at once. It takes tens of milliseconds to make, so all logs
    share it."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        wanted: dict[bytes, list[int]] = {}
        for index, signature in enumerate(signatures):
            for literal in signature.literals:
                wanted.setdefault(literal.encode(), []).append(index)
        self._wanted = [*wanted.values()]
        self._automaton = BytesAhoCorasick([*wanted], implementation=Implementation.DFA)

    def look_at(self, text: bytes) -> Block:
        """The lines of this text that contain literals."""
        text = text.replace(b"\r", b"\n") + b"\n"
        kinds, failed_by_kind = text.translate(_KIND), defaultdict[bytes, set[int]](set)
        block, lines = Block(text, {}, {}), defaultdict[int, dict[int, None]](dict)
        line = end = 0
        for number, start, _ in self._automaton.find_matches_as_indexes(text, overlapping=True):
            if start >= end:
                line, end = text.rfind(b"\n", 0, start) + 1, text.find(b"\n", start)
                block.failed[line] = failed_by_kind[kinds[line:end]]
            lines[number][line] = None
        for number, found in lines.items():
            places = [*found]
            for index in self._wanted[number]:
                others = block.places.get(index)
                block.places[index] = sorted({*others, *places}) if others else places
        return block
