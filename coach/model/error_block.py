"""Error blocks: an exception, a crash or a launcher's summary, as a log shows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ErrorKind(StrEnum):
    PYTHON = "python traceback"
    GROUP = "exception group"
    RICH = "traceback in a box"
    """A traceback of the library rich: a box around the frames, the exception below the box."""
    NOTEBOOK = "traceback of a notebook"
    """IPython's traceback: the exception's type stands before the words "Traceback (most recent call
    last)"."""
    HEADLESS = "frames without a head"
    """A traceback that began before the log, or in another file."""
    FATAL = "fault handler"
    NATIVE = "native exception"
    """An uncaught C++ exception: terminate's message with what(), and torch's C++ frames."""
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
        """The frame as Python prints it in a traceback."""
        line = f", line {self.line}" if self.line is not None else ""
        return f'File "{self.file}"{line}' + (f", in {self.function}" if self.function else "")


@dataclass(frozen=True, slots=True)
class ErrorBlock:
    """One error as a log shows it: its frames, its type and its message. Lines count from 1."""

    kind: ErrorKind
    file: str
    first_line: int
    error_line: int
    """The line with the type and the message; the last line of a block that has no such line."""
    last_line: int
    """Below `error_line` if the message has several lines."""
    lines: tuple[str, ...]
    """From the first line of the chain's first block to `error_line`, without prefixes."""
    frames: tuple[Frame, ...]
    """Innermost frame last."""
    type: str | None
    """As the log writes it, with its module; None if the block is cut off before its type."""
    message: str
    """The whole message; it may have several lines."""
    chain: tuple[ErrorBlock, ...] = ()
    """The earlier blocks, oldest first, that led to this one: after each stands "During handling of the above
    exception" or "direct cause"."""
    rank: int | None = None
    """The rank in the launcher's line prefix; for torchrun's first failure, the rank that failed."""
    process: str | None = None
    """The thread, worker or child process that raised it, if the line above the block names one."""
    level: str | None = None
    """The level of the logger that printed it, such as `W` or `ERROR`."""
    is_ignored: bool = False
    """True if Python, a library or a logger printed it and went on."""
    exit_code: int | None = None
    """Exit code in torchrun's first failure; a negative number is a signal."""
    node: str | None = None
    """The host that torchrun's first failure names."""

    @property
    def name(self) -> str:
        """The type without its module; "" without a type."""
        return (self.type or "").rpartition(".")[2]

    @property
    def is_traceback(self) -> bool:
        """True for a Python exception."""
        return self.kind not in (ErrorKind.FATAL, ErrorKind.NATIVE, ErrorKind.ELASTIC)

    @property
    def is_of_thread(self) -> bool:
        """True if a thread raised it that is not the main one: the process goes on."""
        return (self.process or "").startswith("Thread")

    @property
    def may_end_process(self) -> bool:
        """True for a whole Python exception of a main thread that was not ignored."""
        return self.is_traceback and self.type is not None and not self.is_ignored and not self.is_of_thread

    @property
    def all_frames(self) -> tuple[Frame, ...]:
        """The frames of the chain, then those of this block; the innermost frame of this block is last."""
        return (*(self.chain[-1].all_frames if self.chain else ()), *self.frames)
