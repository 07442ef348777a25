"""Detect a restarted program: one of the first lines of the log occurs again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from coach.sources.logs.line_text import end_of_line, start_of_line

NUM_LINES = 10
"""Number of lines at the log's beginning from which the first lines are chosen."""
_MAX_KEPT = 3
_MIN_CHARS = 12
"""A first line needs a part without digits that is at least this long."""
_MAX_CHARS = 80
_MAX_PLACES = 100
"""A line that occurs more often in one piece of the log is printed repeatedly by one program."""
_GOES_ON = re.compile(
    r"(?i)\s|[\W_]*$|Traceback|.*(?:\b(?:epoch|step|iter|loss|acc|usage)|\d%|\d ?/ ?\d|error\b|exception\b)"
)
"""Lines with a counter and error lines also occur in the middle of a run."""
_DIGITS = re.compile(r"\d+")


class FirstLines:
    """Learns the first lines of a log, then searches for them in the rest."""

    def __init__(self) -> None:
        self._num_seen = 0
        self._patterns: dict[bytes, re.Pattern[str]] = {}
        self._shapes: set[str] = set()

    @property
    def is_learned(self) -> bool:
        return self._num_seen >= NUM_LINES

    def learn(self, words: str) -> None:
        """Learn from the next of the first lines, given without its prefixes."""
        self._num_seen += 1
        words = words[:_MAX_CHARS].rstrip()
        if _GOES_ON.match(words):
            return
        shape = _DIGITS.sub("0", words)
        if shape in self._shapes:
            # Several processes print this line, or one prints it repeatedly.
            self._patterns, self._num_seen = {}, NUM_LINES
            return
        self._shapes.add(shape)
        longest = max(_DIGITS.split(words), key=len).strip()
        if len(self._patterns) < _MAX_KEPT and len(longest) >= _MIN_CHARS:
            pieces = map(re.escape, _DIGITS.split(words))
            self._patterns[longest.encode()] = re.compile(r"\d+".join(pieces))

    def places(self, block: bytes) -> Iterator[tuple[int, bytes, re.Pattern[str]]]:
        """(offset, line, pattern) for each line of a block that may be a first line."""
        for literal, pattern in [*self._patterns.items()]:
            place = block.find(literal)
            if place >= 0 and block.count(literal) > _MAX_PLACES:
                del self._patterns[literal]
                continue
            while place >= 0:
                start, end = start_of_line(block, place, 0), end_of_line(block, place)
                yield start, block[start:end], pattern
                place = block.find(literal, end)
