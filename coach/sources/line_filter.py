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
_NOTHING: frozenset[int] = frozenset()
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

    def __init__(self, kinds: list[bytes]) -> None:
        self.kinds = kinds
        self.places: dict[int, list[int]] = defaultdict(list)
        """Signature → numbers of lines, ascending."""

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *_ends(self.kinds)]

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
        wanted: dict[bytes, frozenset[int]] = {}
        for index, signature in enumerate(signatures):
            for literal in signature.literals:
                wanted[literal.encode()] = wanted.get(literal.encode(), _NOTHING) | {index}
        self._wanted = wanted
        # A number says nothing in a kind: it is looked for in the lines themselves, if the words around it were seen.
        self._numbers = [literal for literal in wanted if not literal.strip(_DIGITS)]
        self._numbers_automaton = BytesAhoCorasick(self._numbers)
        self._literals = [literal for literal in wanted if literal.strip(_DIGITS)]
        self._automaton = BytesAhoCorasick(
            [literal.translate(_KIND) for literal in self._literals], implementation=Implementation.DFA
        )
        self._has_digit = [literal.translate(None, _DIGITS) != literal for literal in self._literals]
        self._known: dict[bytes, frozenset[int]] = {}
        self.num_known_bytes = 0

    def look_at(self, text: bytes) -> Block:
        """The lines of this text, and where to look further."""
        kinds = text.translate(_KIND).split(b"\n")
        distinct = set(kinds)
        if self.num_known_bytes > _MAX_KNOWN_BYTES:
            self._known, self.num_known_bytes = {}, 0
        new = distinct.difference(self._known)
        if new:
            self._learn(list(new))
        block = Block(kinds)
        known, places = self._known, block.places
        if any(map(known.__getitem__, distinct)):
            for line, kind in enumerate(kinds):
                for index in known[kind]:
                    places[index].append(line)
        self._add_numbers(block, text)
        return block

    def turn_down(self, kind: bytes, index: int) -> None:
        """A line of this kind was searched for a signature, in vain."""
        if self._is_blind[index]:
            self._known[kind] = self._known[kind] - {index} or _NOTHING

    def is_turned_down(self, kind: bytes, index: int) -> bool:
        return self._is_blind[index] and index not in self._known[kind]

    def _learn(self, kinds: list[bytes]) -> None:
        joined = b"\n".join(kinds)
        self.num_known_bytes += len(joined) + _BYTES_PER_KIND * len(kinds)
        known, ends = self._known, _ends(kinds)
        known.update(dict.fromkeys(kinds, _NOTHING))
        seen: set[int] = set()
        for number, begin, _ in self._automaton.find_matches_as_indexes(joined, overlapping=True):
            if self._has_digit[number]:
                seen.add(number)
                continue
            kind, wanted = kinds[bisect_right(ends, begin)], self._wanted[self._literals[number]]
            known[kind] = known[kind] | wanted if known[kind] else wanted
        numbers = {self._literals[number] for number in seen}.difference(self._numbers)
        if numbers:
            self._numbers += numbers
            self._numbers_automaton = BytesAhoCorasick(self._numbers)

    def _add_numbers(self, block: Block, text: bytes) -> None:
        """The lines that hold a literal with digits in it."""
        found: dict[int, set[int]] = defaultdict(set)
        for number, begin, _ in self._numbers_automaton.find_matches_as_indexes(text, overlapping=True):
            for index in self._wanted[self._numbers[number]]:
                found[index].add(block.line_at(begin))
        for index, lines in found.items():
            block.places[index] = sorted(lines.union(block.places[index]))


def _ends(lines: Sequence[bytes]) -> list[int]:
    """Behind each line and its line end."""
    return list(map(add, accumulate(map(len, lines)), count(1)))
