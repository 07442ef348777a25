"""How a run ended, judged once for all rules and screens."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from coach.model.error_block import ErrorBlock


class End(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    EXCEPTION = "exception"
    SIGNAL = "signal"
    SLURM = "ended by Slurm"
    STATUS = "exit status"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RankEnd:
    """The rank that ended first, and its end."""

    rank: int | None
    node: str | None
    exit_code: int | None
    """A negative one is a signal."""
    block: ErrorBlock | None = None
    """Its exception, or torchrun's words about it."""
    is_told_by_launcher: bool = False
    """True if torchrun observed it; False for exit.json's and for the earliest exception."""


@dataclass(frozen=True, slots=True)
class LastSign:
    """The last sign of life: the end of the log that was written last, and the newest time in the data."""

    file: str | None
    line: int | None
    time_s: float | None


@dataclass(frozen=True, slots=True)
class LogSigns:
    """Signs in the kept lines of one log: indices of lines in their order, and counts before each line."""

    deaths: tuple[int, ...]
    good_ends: tuple[int, ...]
    passed_tests: tuple[int, ...]
    num_unbuffered: tuple[int, ...]
    """Lines of progress bars and loggers."""
    num_told: tuple[int, ...]
    """Lines that no fault handler prints."""

    def death_from(self, start: int) -> int | None:
        return next(iter(self.deaths[bisect_left(self.deaths, start) :]), None)

    @property
    def has_good_end(self) -> bool:
        """True if a line says that all was done, or that all tests passed."""
        return bool(self.good_ends or self.passed_tests)


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """A run that stands in the same log above the one that is judged."""

    file: str
    first_line: int
    last_line: int
    ended: str
    """The type of its exception, or the line that tells its end."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run ended."""

    end: End
    reason: str | None = None
    """Slurm's state, the exception's type, or the signal's number or exit status as text."""
    exit_code: int | None = None
    """The job's own."""
    first: RankEnd | None = None
    last_sign: LastSign | None = None
    survived: tuple[ErrorBlock, ...] = ()
    """The errors after which the program went on."""
    lost_steps: int | None = None
    """Steps since the last complete checkpoint; None if no step or no checkpoint is known."""
    lost_s: float | None = None
    """Seconds since the last complete checkpoint."""
    can_resume: bool | None = None
    """True with a complete checkpoint; None if nobody knows where the run keeps its checkpoints."""
    signs: Mapping[str, LogSigns] = field(default_factory=lambda: MappingProxyType({}))
    """By file, of the logs in which an error or an end was looked for."""
    last_losses: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """File → the line of its last finite loss."""
    earlier: tuple[EarlierRun, ...] = ()
    """The runs above it in its logs, in order."""
