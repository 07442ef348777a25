"""A request for part of a log, and that part: the values between pager and reader."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLook:
    """The part of a log to read. Without offset, line or words: its end."""

    files: tuple[str, ...]
    """One file, or two that are merged by the times of their lines; for two, offset and line are ignored."""
    offset: int | None = None
    """Read around the line that contains this byte; a search starts there."""
    line: int | None = None
    """Read around this line number, counted from 1."""
    words: str | None = None
    """Search for these words. Words without capitals match capitals too."""
    is_for_error: bool = False
    """Search for the next line that reports an error."""
    is_backwards: bool = False
    is_wrapped: bool = False
    """Search from the log's beginning, because the words do not occur below the place of the search."""

    @property
    def is_search(self) -> bool:
        return self.words is not None or self.is_for_error


@dataclass(frozen=True, slots=True)
class LogWindow:
    """Consecutive whole lines of a log."""

    file: str
    lines: tuple[str, ...]
    """The lines as a terminal shows them: decoded, without colours, with the last state of progress bars."""
    offsets: tuple[int, ...]
    """Byte offset of each line's start, and as one more element the end of the last line."""
    size_bytes: int
    """Size of the whole file."""
    first_line: int | None = None
    """Line number of lines[0]; None while the lines before it have not been counted."""
    focus: int | None = None
    """Index of the requested line; None if it was not found or nothing was requested."""
    errors: frozenset[int] = frozenset()
    """Indices of lines that report an error."""
    streams: tuple[str, ...] = ()
    """The stream of each line, if two files are merged."""
    is_binary: bool = False

    @property
    def start(self) -> int:
        return self.offsets[0]

    @property
    def end(self) -> int:
        return self.offsets[-1]

    @property
    def has_start(self) -> bool:
        return self.start == 0

    @property
    def has_end(self) -> bool:
        return self.end >= self.size_bytes


def folds_case(words: str) -> bool:
    """True if a search for these words ignores case, because they contain no capitals."""
    return words == words.lower()
