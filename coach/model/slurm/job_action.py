"""Actions of users on their own jobs: the verb, the exact commands, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from shlex import join


class Verb(StrEnum):
    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    REQUEUE = "requeue"
    TIMELIMIT = "timelimit"
    RESUBMIT = "resubmit"
    RESUME = "resume"
    SHELL = "shell"
    ATTACH = "attach"

    @property
    def done(self) -> str:
        """Past participle for the report: "cancelled"."""
        return _DONE[self]


_DONE = {
    Verb.CANCEL: "cancelled",
    Verb.HOLD: "held",
    Verb.RELEASE: "released",
    Verb.REQUEUE: "requeued",
    Verb.TIMELIMIT: "given a lower time limit",
    Verb.RESUBMIT: "submitted again",
    Verb.RESUME: "resumed",
    Verb.SHELL: "left",
    Verb.ATTACH: "joined by a sampler",
}


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """The fields of a queue row that actions need. `job_id` may stand for many array tasks: `17_[3-8%2]`."""

    job_id: str
    raw_job_id: str
    user: str
    state: str
    reason: str | None = None
    submit_time_s: float | None = None
    time_limit_s: int | None = None
    """None: no limit, or unknown."""
    time_used_s: int | None = None
    can_requeue: bool | None = None
    num_nodes: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A job that the action leaves alone, and why."""

    job_id: str
    reason: str

    @property
    def words(self) -> str:
        return f"{self.job_id}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and the jobs that it affects."""

    argv: tuple[str, ...]
    job_ids: tuple[str, ...]
    run_dir: str | None = None
    """The run directory of a local run, which has a supervisor instead of Slurm."""
    row: QueuedJob | None = None
    """The local run as a row of a queue."""


@dataclass(frozen=True, slots=True)
class JobAction:
    """A planned action. It is carried out exactly as planned."""

    verb: Verb
    steps: tuple[Step, ...]
    left_out: tuple[LeftOut, ...] = ()
    jobs: tuple[QueuedJob, ...] = ()
    """The jobs that it changes, as they were when it was planned."""
    notes: tuple[str, ...] = ()
    """Consequences that the user should know before confirming."""
    waiting_run_dirs: tuple[tuple[str, str], ...] = ()
    """(name of the job in the command, run directory) of runs whose script is not running: coach must record
    their end itself."""
    timeout_s: float = 12.0
    """Time limit of each command, in seconds."""
    script: str | None = None
    """The batch script that is submitted again."""
    script_file: str | None = None
    """File to which the script is written first; None if the file exists already."""

    @property
    def commands(self) -> tuple[str, ...]:
        """The exact command lines."""
        return tuple(join(step.argv) for step in self.steps)

    @property
    def job_ids(self) -> tuple[str, ...]:
        return tuple(job_id for step in self.steps for job_id in step.job_ids)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an action: the changed jobs, the refused ones with Slurm's message, other messages."""

    verb: Verb
    done: tuple[str, ...]
    refused: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """One line: `17, 18 were held · 19: Job is pending execution`."""
        parts = []
        if self.done:
            parts.append(
                f"{', '.join(self.done)} {'was' if len(self.done) == 1 else 'were'} {self.verb.done}"
            )
        return " · ".join((*parts, *(each.words for each in self.refused), *self.notes))
