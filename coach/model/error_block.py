"""Error blocks: an exception, a crash or a launcher's summary, as a log shows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ErrorKind(StrEnum):
    PYTHON = "python traceback"
    GROUP = "exception group"
    RICH = "traceback in a box"
    """rich draws a box around the frames, and the exception stands below it."""
    NOTEBOOK = "traceback of a notebook"
    """IPython's: the exception's type stands before the words "Traceback (most recent call last)"."""
    HEADLESS = "frames without a head"
    """A traceback that began before the log, or in another file."""
    FATAL = "fault handler"
    NATIVE = "native exception"
    """C++'s terminate, with its what() and the frames of torch."""
    ELASTIC = "first failure of torchrun"


@dataclass(frozen=True, slots=True)
class Frame:
    """One call in an error block."""

    file: str
    line: int | None
    """None in native code."""
    function: str | None
    source: str | None
    """The source line, if the log shows it."""
    number: int
    """The line of the log that names the frame."""

    @property
    def text(self) -> str:
        """As Python writes it."""
        line = f", line {self.line}" if self.line is not None else ""
        return f'File "{self.file}"{line}' + (f", in {self.function}" if self.function else "")


@dataclass(frozen=True, slots=True)
class ErrorBlock:
    """One error as a log shows it: its frames, its type and its message. Lines count from 1."""

    kind: ErrorKind
    file: str
    first_line: int
    error_line: int
    """The line with the type and the message; of an unfinished block its last line."""
    last_line: int
    """Below `error_line` if the message goes on."""
    lines: tuple[str, ...]
    """From the head of the first block of the chain to `error_line`, without prefixes."""
    frames: tuple[Frame, ...]
    """The innermost frame last."""
    type: str | None
    """As it is written, with its module; None if the block has no end."""
    message: str
    """All its lines."""
    chain: tuple[ErrorBlock, ...] = ()
    """The blocks above it, the oldest first, that ended in "During handling of the above exception" or in
    "direct cause"."""
    rank: int | None = None
    """Of the launcher's prefix; of torchrun's first failure the rank that failed."""
    process: str | None = None
    """The thread, worker or child process that raised it, if the line above the block names one."""
    level: str | None = None
    """The level of the logger that printed it, such as `W` or `ERROR`."""
    is_ignored: bool = False
    """True if Python, a library or a logger printed it and went on."""
    exit_code: int | None = None
    """Of torchrun's first failure; a negative one is a signal."""
    node: str | None = None
    """Of torchrun's first failure."""

    @property
    def name(self) -> str:
        """The type without its module; empty without a type."""
        return (self.type or "").rpartition(".")[2]

    @property
    def is_traceback(self) -> bool:
        """True for an exception of Python."""
        return self.kind not in (ErrorKind.FATAL, ErrorKind.NATIVE, ErrorKind.ELASTIC)

    @property
    def all_frames(self) -> tuple[Frame, ...]:
        """Those of the chain above too, the innermost of this block last."""
        return (*(self.chain[-1].all_frames if self.chain else ()), *self.frames)
