"""Hits of one signature in one log, bounded however often the log repeats them.

Rules need the first and the last hits; a curve also needs hits between them, thinned evenly.
"""

from __future__ import annotations

from collections.abc import Iterator

from coach.model.training.log import MAX_FIRST_HITS, LogHit

MAX_BETWEEN_HITS = 256
MAX_LAST_HITS = 100


class KeptHits:
    """The first hits, the last hits, and evenly spaced hits between them."""

    def __init__(self) -> None:
        self._first: list[LogHit] = []
        self._between: list[LogHit] = []
        self._last: list[LogHit] = []
        self._stride = 1
        self._num_passed = 0

    def __iter__(self) -> Iterator[LogHit]:
        yield from self._first
        yield from self._between
        yield from self._last

    def add(self, hit: LogHit) -> None:
        if len(self._first) < MAX_FIRST_HITS:
            self._first.append(hit)
            return
        self._last.append(hit)
        if len(self._last) > MAX_LAST_HITS:
            passed = self._last.pop(0)
            if "value" in passed.fields:  # a point of a curve
                self._pass(passed)

    def _pass(self, hit: LogHit) -> None:
        if self._num_passed % self._stride == 0:
            self._between.append(hit)
        self._num_passed += 1
        if len(self._between) > MAX_BETWEEN_HITS:
            self._between = self._between[::2]
            self._stride *= 2

    def from_line(self, line: int) -> KeptHits:
        """The hits at or below this line."""
        kept = KeptHits()
        for hit in self:
            if hit.line >= line:
                kept.add(hit)
        return kept
