"""A stretch of a log as it stands in the file, and what is asked for: the values between pager and reader."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLook:
    """What to read of a log. Without a place: its end."""

    files: tuple[str, ...]
    """Two files are put into one, by the times of their lines; then no place counts."""
    offset: int | None = None
    """Read around the line that holds this byte; a search begins there."""
    line: int | None = None
    """Read around the line of this number, which counts from 1."""
    words: str | None = None
    """Search for these words. Words in small letters find capitals, too."""
    is_for_error: bool = False
    """Search for the next line that reports an error."""
    is_backwards: bool = False

    @property
    def is_search(self) -> bool:
        return self.words is not None or self.is_for_error


@dataclass(frozen=True, slots=True)
class LogWindow:
    """Whole lines of a log, beside each other."""

    file: str
    lines: tuple[str, ...]
    """As a terminal would show them: decoded, without colours, of a progress line its last state."""
    offsets: tuple[int, ...]
    """Where each line begins, in bytes of the file; one more than lines: where the last one ends."""
    size_bytes: int
    """Of the whole file."""
    first_line: int | None = None
    """Number of lines[0]; None while nobody has counted the lines before it."""
    focus: int | None = None
    """Index of the line that was asked for; None where it was not found, or nothing was asked."""
    errors: frozenset[int] = frozenset()
    """Indexes of lines that report an error."""
    streams: tuple[str, ...] = ()
    """Of each line the stream it comes from, where two are put into one."""
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
    """True if capitals and small letters are the same to a search for these words: no capital is among
    them."""
    return words == words.lower()
