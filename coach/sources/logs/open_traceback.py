"""A hit inside a traceback whose end was not read yet: the log goes on, and so does the hit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coach.model.training.log import LogHit
from coach.sources.logs.line_text import is_inside_frames

MAX_TRACEBACK_LINES = 400


@dataclass(slots=True)
class OpenTraceback:
    """The hit, with the lines of its traceback as far as they were read."""

    hit: LogHit
    lines: list[str]
    num_seen: int = 0
    is_closed: bool = False

    def add(self, rank: int | None, words: str) -> None:
        """Take the next line of the log. A line of another rank only counts towards the limit."""
        self.num_seen += 1
        if rank == self.hit.rank and words.strip():
            self.lines.append(words)
            self.is_closed = not is_inside_frames(words)
        self.is_closed = self.is_closed or self.num_seen >= MAX_TRACEBACK_LINES

    @property
    def complete_hit(self) -> LogHit:
        return replace(self.hit, traceback=tuple(self.lines))
