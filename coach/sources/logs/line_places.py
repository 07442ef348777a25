"""The lines of a piece of log, told by their places, and the ones of them that may match a signature.

Places are computed one by one, from either end: of many lines that match, only the first and the last are
searched. Pure: bytes in, places out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Reversible, Sequence
from functools import cached_property
from heapq import merge
from itertools import compress, count, groupby
from typing import NamedTuple

Probe = Callable[[bytes, int], object]
"""(text, place) → something true, if what stands at the place fits."""
Search = Callable[[bytes, int, int], object]
"""(text, start, end) → something true, if what is looked for stands between the two."""

KIND = bytes.maketrans(b"123456789\r", b"000000000\n")
"""Makes a kind of a line: every digit becomes 0, and a carriage return ends a line as well."""


class Lines:
    """The complete lines of a piece of log. A line is identified by the place where it begins."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    @cached_property
    def text_by_newlines(self) -> bytes:
        """The text with a newline for every carriage return, so that all lines end alike."""
        return self.text.replace(b"\r", b"\n")

    def kind_of(self, line: int) -> bytes:
        """The line with every digit as 0."""
        return self.text[line : self.end_of(line)].translate(KIND)

    def end_of(self, place: int) -> int:
        end = self.text_by_newlines.find(b"\n", place)
        return len(self.text) if end < 0 else end


class Block:
    """The lines of a piece of log, and which of them may match which signature."""

    def __init__(self, text: bytes) -> None:
        self.lines = Lines(text)
        self.places: dict[int, Reversible[int]] = {}
        """Index of a signature → places of lines, ascending."""
        self.is_by_kind = False
        """True if the lines were classified by kind."""


class Asked(NamedTuple):
    """Cheap checks that a line with a literal must pass before a signature's pattern runs.

    None: no such check.
    """

    may_go_on: Probe | None
    """Does the text behind the literal fit?"""
    may_begin: Probe | None
    """Does the beginning of the line fit?"""
    holds: Search | None
    """Does the line hold one of the other words that the pattern needs?"""


class LinesOfKinds(Reversible[int]):
    """Places of the lines whose kind may match a signature.

    `wanted` are, line by line, the signatures that the kind may match; `chosen` those sets that count here.
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
    """Places of the lines that hold a literal and pass its checks, by the ends of the literals in them.

    They are looked at one by one, because few of many like lines are wanted.
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
    """A literal that is looked for by itself, and the checks of one signature for its line."""

    signature: int
    asked: Asked
    literal: bytes
    behind: re.Pattern[bytes]
    with_behind: re.Pattern[bytes]


class EndsOfLiteral(Reversible[int]):
    """The ends of a literal that stands in very many lines.

    They are looked for one by one, because few are wanted.
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
    """The places of several ascending (or descending) sequences in order, without repeats."""
    return (line for line, _ in groupby(among[0] if len(among) == 1 else merge(*among, reverse=is_reversed)))
