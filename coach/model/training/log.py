"""Log signatures, and what they hit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coach.model.error_block import ErrorBlock

MAX_LINE_BYTES = 16 << 10
"""A longer line of a log is cut."""
MAX_SEARCHED_CHARS = 2048
"""A signature searches this much of a line.

Some patterns take the square of it in time, and an error names itself well before.
"""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a rule looks for in logs. A line is searched with `pattern` only if it contains one of `literals`
    (the prefilter)."""

    rule: str
    name: str
    literals: tuple[str, ...]
    """Case-sensitive; every line that `pattern` can match contains at least one."""
    pattern: str
    """A regular expression, compiled when a line first holds a literal. Named groups become the hit's
    fields."""
    unless: str | None = None
    """A line that holds this does not count."""
    is_heeded: bool = False
    """True if a line does not count that a logger gives a level below ERROR: the program has caught it."""
    in_error: bool = False
    """True if the words stand behind the type of an exception."""
    reads_source: bool = False
    """True for the rare words that stand in a traceback's frame or source line; all others are matched with
    its exception alone."""
    max_chars: int = MAX_SEARCHED_CHARS
    """A pattern that takes linear time may see more of a line."""


MARK = ""
"""In the place of a rule's code: the hit is of no rule, it helps to tell the runs of one log apart."""
FIRST_LINE = "first line"
"""The signature of a mark: one of the lines that the log begins with stands here again."""


@dataclass(frozen=True, slots=True)
class LogHit:
    """A signature found in a log. `line` counts from 1."""

    rule: str
    signature: str
    file: str
    line: int
    text: str
    """The line, without its line end, rank prefix kept."""
    fields: Mapping[str, str]
    rank: int | None = None
    time_s: float | None = None
    """The line's own time stamp, if it has one."""
    block: ErrorBlock | None = None
    """The error block that the line stands in."""

    @property
    def traceback(self) -> tuple[str, ...]:
        """The lines of the Python exception's block; empty without one."""
        return self.block.lines if self.block is not None and self.block.is_traceback else ()


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a log: what a screen shows."""

    file: str
    first_line: int
    """Number of lines[0]."""
    lines: tuple[str, ...]
    """Where a log was broken at one width they are whole again, with empty lines behind them."""
    size_bytes: int
    num_lines: int
    is_binary: bool = False
    is_counted: bool = True
    """False while a large log is still being read: these are its last lines, but nobody knows their numbers
    yet."""
    unread_bytes: int = 0
    """How much of a large log is still to be read."""
    words: tuple[str, ...] = ()
    """The lines without what stands before each of them; empty where nothing does."""
    blocks: tuple[ErrorBlock, ...] = ()
    """The last error blocks of the log, in order."""
    written_s: float | None = None
    """When something was last written to it, in seconds since the epoch: at the first look what the file
    system says, later when it was seen to grow."""

    @property
    def plain(self) -> tuple[str, ...]:
        """As rules read the lines."""
        return self.words or self.lines


@dataclass(frozen=True, slots=True)
class LogFile:
    """Where a log was looked for, and what came of it."""

    path: str
    is_found: bool
    """False where no file is, or not yet."""
    problem: str | None = None
    """Why it cannot be read, or not any more."""
