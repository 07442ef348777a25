"""The lines of a piece of log, as offsets, and those that may match a signature.

Offsets are computed lazily, from either end: if many lines match, only the first and the last ones are
searched. Pure: bytes in, offsets out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Reversible, Sequence
from functools import cached_property
from heapq import merge
from itertools import compress, count, groupby
from typing import NamedTuple

Probe = Callable[[bytes, int], object]
"""(text, offset) → true if the text at the offset fits."""
Search = Callable[[bytes, int, int], object]
"""(text, start, end) → true if the text between the two contains a match."""

KIND = bytes.maketrans(b"123456789\r", b"000000000\n")
"""Turns a line into its kind: every digit becomes 0, and a carriage return ends a line too."""


class Lines:
    """The complete lines of a piece of log. A line is identified by its offset."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    @cached_property
    def text_by_newlines(self) -> bytes:
        """The text with newlines in place of carriage returns, so that all lines end alike."""
        return self.text.replace(b"\r", b"\n")

    def kind_of(self, line: int) -> bytes:
        """The line with every digit replaced by 0."""
        return self.text[line : self.end_of(line)].translate(KIND)

    def end_of(self, place: int) -> int:
        end = self.text_by_newlines.find(b"\n", place)
        return len(self.text) if end < 0 else end


class Block:
    """The lines of a piece of log, and for each signature the lines that may match it."""

    def __init__(self, text: bytes) -> None:
        self.lines = Lines(text)
        self.places: dict[int, Reversible[int]] = {}
        """Index of a signature → offsets of lines, ascending."""
        self.is_by_kind = False
        """True if the lines were classified by kind."""


class Asked(NamedTuple):
    """Cheap checks that a line with a literal must pass before a signature's pattern runs.

    None: there is no such check.
    """

    may_go_on: Probe | None
    """Does the text behind the literal fit?"""
    may_begin: Probe | None
    """Does the beginning of the line fit?"""
    holds: Search | None
    """Does the line hold one of the other words that the pattern needs?"""


class LinesOfKinds(Reversible[int]):
    """Offsets of the lines whose kind may match a signature.

    `wanted` holds for each line the set of signatures that its kind may match; `chosen` holds the sets that
    contain this signature.
    """

    def __init__(self, kinds: Sequence[bytes], wanted: Sequence[object], chosen: Container[object]) -> None:
        self._kinds = kinds
        self._wanted = wanted
        self._chosen = chosen

    def __iter__(self) -> Iterator[int]:
        kinds, last, start = self._kinds, 0, 0
        for number in compress(count(), map(self._chosen.__contains__, self._wanted)):
            start += sum(map(len, kinds[last:number])) + number - last
            last = number
            yield start

    def __reversed__(self) -> Iterator[int]:
        kinds, last = self._kinds, len(self._kinds)
        start = sum(map(len, kinds)) + last
        numbers = range(last - 1, -1, -1)
        for number in compress(numbers, map(self._chosen.__contains__, reversed(self._wanted))):
            start -= sum(map(len, kinds[number:last])) + last - number
            last = number
            yield start


class LinesWithLiterals(Reversible[int]):
    """Offsets of the lines that contain a literal and pass its checks, computed from the ends of the
    literals.

    They are computed one by one, because only a few of many similar lines are needed.
    """

    def __init__(self, lines: Lines, found: Sequence[tuple[Asked, Reversible[int]]]) -> None:
        self._among = lines
        self._found = found

    def __iter__(self) -> Iterator[int]:
        return _each_once([self._lines(asked, ends) for asked, ends in self._found], is_reversed=False)

    def __reversed__(self) -> Iterator[int]:
        return _each_once(
            [self._lines(asked, reversed(ends)) for asked, ends in self._found], is_reversed=True
        )

    def _lines(self, asked: Asked, ends: Iterable[int]) -> Iterator[int]:
        text, find_backwards = self._among.text, self._among.text_by_newlines.rfind
        may_go_on, may_begin, holds = asked
        asked_of = -1
        for end in ends:
            if may_go_on is None or may_go_on(text, end):
                line = find_backwards(b"\n", 0, end) + 1
                if line == asked_of:
                    continue
                asked_of = line
                if (may_begin is None or may_begin(text, line)) and (
                    holds is None or holds(text, line, self._among.end_of(end))
                ):
                    yield line


class LiteralAlone(NamedTuple):
    """A literal that is searched separately, and one signature's checks for its line."""

    signature: int
    asked: Asked
    literal: bytes
    behind: re.Pattern[bytes]
    with_behind: re.Pattern[bytes]


class EndsOfLiteral(Reversible[int]):
    """The ends of a literal that occurs in very many lines.

    They are searched one by one, because only a few are needed.
    """

    def __init__(self, text: bytes, alone: LiteralAlone) -> None:
        self._text = text
        self._alone = alone

    def __iter__(self) -> Iterator[int]:
        return map(re.Match.end, self._alone.with_behind.finditer(self._text))

    def __reversed__(self) -> Iterator[int]:
        text, literal, may_go_on = self._text, self._alone.literal, self._alone.behind.match
        place = text.rfind(literal)
        while place >= 0:
            if may_go_on(text, place + len(literal)):
                yield place + len(literal)
            place = text.rfind(literal, 0, place)


def _each_once(among: Sequence[Iterator[int]], is_reversed: bool) -> Iterator[int]:
    """The offsets of several ascending (or descending) sequences in order, without repeats."""
    return (line for line, _ in groupby(among[0] if len(among) == 1 else merge(*among, reverse=is_reversed)))
