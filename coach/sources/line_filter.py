"""Which lines of a log are worth decoding: those that hold a literal of a signature and are of a kind not yet turned down.

The lines of a log differ mostly in their digits, so a kind of line is looked at once. That must not change what is found, and
is therefore kept apart from how lines are read: the scanner asks, and could do without. Pure: bytes in, places out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, count
from operator import add

from ahocorasick_rs import BytesAhoCorasick, Implementation

from coach.model.log import Signature

_MAX_KNOWN_BYTES = 16 << 20
_BYTES_PER_KIND = 200
"""What Python needs to remember one, beside its text."""

_DIGITS = b"0123456789"
_KIND = bytes.maketrans(b"123456789\r", b"000000000\n")
_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")
_NO_DIGIT_MEANT = re.compile(r"(?<!\\)\{\d*,?\d*\}|\(\?P<\w+>|\\u(?!00)[0-9a-fA-F]{4}")
_DIGIT_MEANT = re.compile(r"[0-9]|\(\?P=")


def is_digit_blind(pattern: re.Pattern[str]) -> bool:
    """Whether it takes any digit for any other: it names none, and refers to nothing that it has matched before."""
    words = _CLASS.sub(lambda found: found[0].replace("0-9", ""), pattern.pattern)
    return not _DIGIT_MEANT.search(_NO_DIGIT_MEANT.sub("", words))


class Block:
    """The complete lines of a piece of log, and which of them may match which signature."""

    def __init__(self, kinds: list[bytes], start: int) -> None:
        self.kinds = kinds
        self.places: dict[int, list[int]] = defaultdict(list)
        """Signature → numbers of lines, ascending."""
        self._start = start

    @cached_property
    def _starts(self) -> list[int]:
        return [self._start, *_ends(self.kinds, self._start)]

    def start_of(self, line: int) -> int:
        return self._starts[line]

    def end_of(self, line: int) -> int:
        return self._starts[line + 1] - 1

    def line_at(self, place: int) -> int:
        return bisect_right(self._starts, place) - 1


class LineFilter:
    """Remembers the kinds of lines of one log: one kind are lines that differ in nothing but digits."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._is_blind = [
            is_digit_blind(signature.pattern) and not _DIGIT_MEANT.search("".join(signature.literals))
            for signature in signatures
        ]
        wanted: dict[bytes, set[int]] = defaultdict(set)
        for index, signature in enumerate(signatures):
            for literal in signature.literals:
                wanted[literal.encode()].add(index)
        self._wanted = wanted
        # A number says nothing in a kind: it is looked for in the lines themselves, if the words around it were seen.
        self._numbers = {literal for literal in wanted if not literal.strip(_DIGITS)}
        self._literals = [literal for literal in wanted if literal not in self._numbers]
        self._automaton = BytesAhoCorasick(
            [literal.translate(_KIND) for literal in self._literals], implementation=Implementation.DFA
        )
        self._known: dict[bytes, set[int]] = {}
        self._num_known_bytes = 0
        self._nothing: set[int] = set()

    def look_at(self, text: bytes, start: int) -> Block:
        """The lines of text[start:], as far as any may match."""
        kinds = text[start:].translate(_KIND).split(b"\n")
        distinct = set(kinds)
        if self._num_known_bytes > _MAX_KNOWN_BYTES:
            self._known, self._num_known_bytes = {}, 0
        new = distinct.difference(self._known)
        if new:
            self._learn(list(new))
        block = Block(kinds, start)
        known, places = self._known, block.places
        if any(map(known.__getitem__, distinct)):
            for line, kind in enumerate(kinds):
                for index in known[kind]:
                    places[index].append(line)
        self._add_numbers(block, text, start)
        return block

    def turn_down(self, kind: bytes, index: int) -> None:
        """A line of this kind was searched for a signature, in vain."""
        if self._is_blind[index]:
            self._known[kind].discard(index)

    def is_turned_down(self, kind: bytes, index: int) -> bool:
        return self._is_blind[index] and index not in self._known[kind]

    def _learn(self, kinds: list[bytes]) -> None:
        joined = b"\n".join(kinds)
        self._num_known_bytes += len(joined) + _BYTES_PER_KIND * len(kinds)
        self._known.update(dict.fromkeys(kinds, self._nothing))
        ends = _ends(kinds, 0)
        for number, begin, _ in self._automaton.find_matches_as_indexes(joined, overlapping=True):
            literal = self._literals[number]
            if literal.translate(None, _DIGITS) != literal:
                self._numbers.add(literal)
                continue
            kind = kinds[bisect_right(ends, begin)]
            self._known[kind] = self._known[kind] | self._wanted[literal]

    def _add_numbers(self, block: Block, text: bytes, start: int) -> None:
        """The lines that hold a literal with digits in it."""
        found: dict[int, set[int]] = defaultdict(set)
        for literal in self._numbers:
            place = text.find(literal, start)
            while place >= 0:
                line = block.line_at(place)
                for index in self._wanted[literal]:
                    found[index].add(line)
                place = text.find(literal, block.end_of(line))
        for index, lines in found.items():
            block.places[index] = sorted(lines.union(block.places[index]))


def _ends(lines: Sequence[bytes], start: int) -> list[int]:
    """Behind each line and its line end, where the first begins at `start`."""
    return list(map(add, accumulate(map(len, lines)), count(start + 1)))
