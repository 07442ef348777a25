"""The part of ahocorasick_rs that coach uses, in pure Python, for an interpreter without that native package.

A log repeats its words. So each pattern is known by its longest run of letters, the text is cut into its runs
of letters, and for each different run it is looked up once which patterns may lie there. Only these patterns,
a few of a thousand, are searched in the text. The order of the matches is that of the automaton: by their
end, the longest first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import itemgetter

_LETTERS = re.compile(rb"[A-Za-z]+")
_INNER = re.compile(rb"(?<=[^A-Za-z])[A-Za-z]+(?=[^A-Za-z])")
"""In a pattern: a run that is whole, so that the text must have the same."""
_MAX_KNOWN = 50_000
_LONG = 64
"""A longer run of letters is no word, and hardly comes again: it is not kept."""

Match = tuple[int, int, int]


class Implementation:
    """The kind of automaton; this module has only one."""

    NoncontiguousNFA = ContiguousNFA = DFA = None


class BytesAhoCorasick:
    """Finds many patterns at once."""

    def __init__(self, patterns: Iterable[bytes], implementation: object = None) -> None:
        self._numbers: dict[bytes, list[int]] = {}
        self._by_run: dict[bytes, list[bytes]] = {}
        """Run of letters → the patterns that are known by it."""
        self._always: list[bytes] = []
        """Patterns without a letter."""
        for number, word in enumerate(map(bytes, patterns)):
            if not word:
                raise ValueError("You passed in an empty string as a pattern")
            self._numbers.setdefault(word, []).append(number)
        for word in self._numbers:
            run = max(_LETTERS.findall(word), key=len, default=None)
            if run is None:
                self._always.append(word)
            else:
                self._by_run.setdefault(run, []).append(word)
        self._lengths = sorted({len(run) for run in self._by_run})
        self._known: dict[bytes, tuple[bytes, ...]] = {}

    def find_matches_as_indexes(self, haystack: bytes, overlapping: bool = False) -> list[Match]:
        """(number of the pattern, start, end) of each match."""
        found: list[Match] = []
        for word in self._possible(haystack):
            start = haystack.find(word)
            while start >= 0:
                end = start + len(word)
                found += [(number, start, end) for number in self._numbers[word]]
                start = haystack.find(word, start + 1)
        found.sort(key=itemgetter(2, 1, 0))
        return found if overlapping else _apart(found)

    def _possible(self, haystack: bytes) -> list[bytes]:
        """The patterns that may be in a text."""
        runs = set(_LETTERS.findall(haystack))
        possible = set(self._always)
        for run in runs:
            words = self._known.get(run)
            if words is None:
                words = self._look_up(run)
            possible.update(words)
        return [word for word in possible if runs.issuperset(_INNER.findall(word))]

    def _look_up(self, run: bytes) -> tuple[bytes, ...]:
        """The patterns that may lie at a run of letters."""
        found: set[bytes] = set()
        for length in self._lengths:
            for place in range(len(run) - length + 1):
                found.update(self._by_run.get(run[place : place + length], ()))
        words = tuple(found)
        if len(run) <= _LONG:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[run] = words
        return words


def _apart(matches: Iterable[Match]) -> list[Match]:
    """Matches without overlaps: the first to end wins."""
    apart, end = [], 0
    for match in matches:
        if match[1] >= end:
            apart.append(match)
            end = match[2]
    return apart
