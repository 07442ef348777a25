"""Log signatures and their hits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coach.model.error_block import ErrorBlock, Frame
from coach.model.judging.finding import Fix

MAX_LINE_BYTES = 16 << 10
"""Longer log lines are cut."""
MAX_SEARCHED_CHARS = 2048
"""A signature searches this many characters of a line.

Some patterns take quadratic time, and an error names itself well before this length.
"""

MAX_FIRST_HITS = 100
"""The first hits of each signature are all kept, up to this number; of later ones some are left out."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern that a rule looks for in logs. `pattern` runs only on lines that contain one of `literals`
    (the prefilter)."""

    rule: str
    name: str
    literals: tuple[str, ...]
    """Case-sensitive; every line that `pattern` can match must contain at least one."""
    pattern: str
    """A regular expression. It is compiled when a line first contains a literal; its named groups become the
    fields of the hit."""
    unless: str | None = None
    """A line that contains this does not count."""
    is_heeded: bool = False
    """True: ignore lines that a logger printed with a level below ERROR, because the program handled them."""
    in_error: bool = False
    """True if the words stand behind the exception's type."""
    reads_source: bool = False
    """True: also match the frames and source lines of a traceback. False, for nearly all signatures: match
    only its exception lines."""
    reads_rows: bool = False
    """True: also match the rows of a table, as `step=10, loss=2.3` with the names of its header."""
    max_chars: int = MAX_SEARCHED_CHARS
    """A pattern that takes linear time may search more characters of a line."""
    cause: str | None = None
    """A more exact cause than the rule's own."""
    fixes: tuple[Fix, ...] = field(default=(), hash=False)
    """The fixes of this wording, the likeliest first; empty: those of the rule. `{name}` in a title or a
    command stands for the field of that name."""


MARK = ""
"""Rule code of a mark: a hit that belongs to no rule and separates the runs of one log."""
FIRST_LINE = "first line"
"""Signature of a mark: one of the first lines of the log occurs again."""


@dataclass(frozen=True, slots=True)
class LogHit:
    """A match of a signature in a log. `line` counts from 1."""

    rule: str
    signature: str
    file: str
    line: int
    text: str
    """The line without its line end, with its rank prefix."""
    fields: Mapping[str, str]
    rank: int | None = None
    time_s: float | None = None
    """The time stamp in the line; None if it has none."""
    block: ErrorBlock | None = None
    """The error block that contains the line."""
    row: str = ""
    """For the row of a table its values, with the names of the header; else empty."""
    wording: Signature | None = None
    """The signature that matched; None for a hit that is not the scanner's."""

    @property
    def named(self) -> str:
        """The line with the names of its values."""
        return self.row or self.text

    @property
    def traceback(self) -> tuple[str, ...]:
        """Lines of the block if it is a Python exception; else empty."""
        return self.block.lines if self.block is not None and self.block.is_traceback else ()

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The frames of its block, innermost last; empty without a block."""
        return self.block.frames if self.block is not None else ()

    @property
    def all_frames(self) -> tuple[Frame, ...]:
        """The frames of its block and of the blocks that led to it, innermost last."""
        return self.block.all_frames if self.block is not None else ()


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of a log, as a screen shows it."""

    file: str
    first_line: int
    """Line number of lines[0]."""
    lines: tuple[str, ...]
    """If the log was wrapped at one width, the parts are joined again and empty lines replace the rest."""
    size_bytes: int
    num_lines: int
    is_binary: bool = False
    is_counted: bool = True
    """False while a large log is still being read: these are its last lines, and their numbers are
    unknown."""
    unread_bytes: int = 0
    """Number of bytes that are still to be read."""
    words: tuple[str, ...] = ()
    """The lines without the prefix that all lines have; empty if there is no prefix."""
    blocks: tuple[ErrorBlock, ...] = ()
    """The last error blocks of the log, in log order."""
    is_torn: bool = False
    """True if it ends within a line that is no progress bar: a full buffer was written."""
    longest_pause_s: float = 0.0
    """The longest time for which it was not seen to grow, between two times at which it grew."""
    last_pause_s: float = 0.0
    """The longest such time that ended within a minute of the last growth: before its last words."""
    written_s: float | None = None
    """When the log was last written, in epoch seconds: at the first look the file's mtime, later the time at
    which it was seen to grow."""

    @property
    def plain(self) -> tuple[str, ...]:
        """The lines as rules read them: without prefixes."""
        return self.words or self.lines


@dataclass(frozen=True, slots=True)
class LogFile:
    """A place that was searched for a log, and the result."""

    path: str
    is_found: bool
    """False if there is no file (yet)."""
    problem: str | None = None
    """Why the file cannot be read (any more)."""
    owner: int | None = None
    """The uid for whom it was opened; None: it may be anybody's."""
