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
    """A negative code is a signal."""
    block: ErrorBlock | None = None
    """The exception of this rank, or torchrun's report of it."""
    is_told_by_launcher: bool = False
    """True if torchrun reported it; False if it comes from exit.json or is the earliest exception."""


@dataclass(frozen=True, slots=True)
class LogSigns:
    """Where one log shows deaths and good ends: indices into its kept lines, and counts before each line."""

    deaths: tuple[int, ...]
    good_ends: tuple[int, ...]
    passed_tests: tuple[int, ...]
    num_unbuffered: tuple[int, ...]
    """Number of progress-bar and logger lines before each line."""
    num_told: tuple[int, ...]
    """Number of lines before each line that no fault handler prints."""

    def death_from(self, start: int) -> int | None:
        return next(iter(self.deaths[bisect_left(self.deaths, start) :]), None)

    @property
    def has_good_end(self) -> bool:
        """True if a line reports that everything was done, or that all tests passed."""
        return bool(self.good_ends or self.passed_tests)


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """A run that stands in the same log above the judged run."""

    file: str
    first_line: int
    last_line: int
    ended: str
    """The type of its exception, or the line that reports its end."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run ended."""

    end: End
    reason: str | None = None
    """Slurm's state, the exception's type, or the signal or exit status as text."""
    exit_code: int | None = None
    """The exit code of the job."""
    first: RankEnd | None = None
    survived: tuple[ErrorBlock, ...] = ()
    """Errors after which the program continued."""
    lost_steps: int | None = None
    """Steps since the last complete checkpoint; None if the last step or the checkpoint is unknown."""
    lost_s: float | None = None
    """Seconds since the last complete checkpoint."""
    can_resume: bool | None = None
    """True if there is a complete checkpoint in the run directory. None if there is none, and the program may
    save elsewhere."""
    signs: Mapping[str, LogSigns] = field(default_factory=lambda: MappingProxyType({}))
    """File → signs, for the logs that were searched for an error or an end."""
    last_losses: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """File → the line of its last finite loss."""
    earlier: tuple[EarlierRun, ...] = ()
    """Earlier runs in the same logs, oldest first."""
