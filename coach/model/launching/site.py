"""The site's rules for its cluster: limits, switches, advice, locks.

Launches are checked against them, and screens and commands show them; neither needs to read a config file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Limits:
    """The [limits] table of the site's file: the most that one launch, or one user, may take. None: coach
    sets no limit."""

    max_gpus: int | None = None
    """Largest number of GPUs of one launch, over all nodes."""
    max_time_s: int | None = None
    """Largest time limit of one launch, in seconds. Key `max_time`, in Slurm's spelling."""
    max_running: int | None = None
    """Largest number of pending and running runs of one user."""


class Switch(StrEnum):
    """Features that a site can switch off. The value is the key in the [switches] table."""

    LOCAL_BACKEND = "local_backend"
    """Training on this machine, outside Slurm."""
    LAUNCH = "launch"
    """Every sbatch by coach: launches, fixes, drills, workshops, resubmitted jobs."""
    RESUBMIT = "resubmit"
    """Resubmitting a job that coach did not launch, and relaunching a run."""
    CANCEL = "cancel"
    HOLD = "hold"
    """Holding and releasing pending jobs."""
    REQUEUE = "requeue"
    TIMELIMIT = "timelimit"
    ATTACH = "attach"
    """A job step that measures inside a running job."""
    SHELL = "shell"
    """A shell in a job step."""
    STACKS = "stacks"
    """Reading the stacks of the ranks of a running job."""
    JOB_VERDICT = "job_verdict"
    """Judging a job on its own node when it ends."""
    DRILLS = "drills"
    """Launching runs with planted faults, and answering them."""
    HISTORY = "history"
    """Asking the accounting for the user's ended jobs."""
    FETCH = "fetch"
    """Downloading a data set."""
    CLEAN = "clean"
    """Removing runs."""

    @property
    def key(self) -> str:
        """The dotted key in the site's file."""
        return f"switches.{self.value}"


@dataclass(frozen=True, slots=True)
class Advice:
    """A site's addition to the finding of a rule."""

    text: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Lock:
    """A key that only the site's file may set."""

    reason: str
    origin: str
    """FILE:LINE of the lock."""

    @property
    def words(self) -> str:
        """Text for a refusal: the lock's origin and its reason."""
        return f"locked by the site ({self.origin}): {self.reason}"
