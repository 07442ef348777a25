"""What a site says about its cluster beyond the values of keys: limits, advice, locks.

Launches are checked against them, screens and commands show them; neither needs to know how a config is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Limits:
    """The [limits] table of the site's file: the most that one launch, or one user, may take. None: no limit
    of coach's own."""

    max_gpus: int | None = None
    """GPUs of one launch, all nodes together."""
    max_time_s: int | None = None
    """Time limit of one launch. Key `max_time`, in Slurm's spelling."""
    max_running: int | None = None
    """Runs of one user that may be pending or running at once."""


class Switch(StrEnum):
    """What coach does that a site can switch off. The value is the key's name in the [switches] table."""

    LOCAL_BACKEND = "local_backend"
    """Training on this machine, outside of Slurm."""
    LAUNCH = "launch"
    """Every sbatch of coach's: launches, fixes, drills, workshops, jobs submitted again."""
    RESUBMIT = "resubmit"
    """Submitting a job again that coach did not launch, and launching a run again."""
    CANCEL = "cancel"
    HOLD = "hold"
    """Holding waiting jobs, and releasing them."""
    REQUEUE = "requeue"
    TIMELIMIT = "timelimit"
    ATTACH = "attach"
    """A job step, or an ssh, that measures inside a running job."""
    SHELL = "shell"
    """A job step with a shell."""
    STACKS = "stacks"
    """The stacks of the ranks of a running job."""
    JOB_VERDICT = "job_verdict"
    """Judging a job at its end, on its own node."""
    DRILLS = "drills"
    """Planted faults: launching them, and answering."""
    HISTORY = "history"
    """Asking the accounting for a user's jobs that have ended."""
    FETCH = "fetch"
    """Downloading a data set."""
    CLEAN = "clean"
    """Removing runs, and thinning their records."""
    IDLE_COMMAND = "idle_command"
    """The user's own command for a job whose GPUs are idle."""

    @property
    def key(self) -> str:
        """The dotted key in the site's file."""
        return f"switches.{self.value}"


@dataclass(frozen=True, slots=True)
class Advice:
    """What a site says beside a rule's finding."""

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
        """For a refusal: who says so, where, and why."""
        return f"locked by the site ({self.origin}): {self.reason}"
