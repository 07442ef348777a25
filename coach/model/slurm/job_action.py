"""What a person does to jobs of his own: what is wanted, the exact commands for it, and what came of them."""

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
    SHELL = "shell"
    ATTACH = "attach"

    @property
    def done(self) -> str:
        """In the past tense, for what is told afterwards."""
        return _DONE[self]


_DONE = {
    Verb.CANCEL: "cancelled",
    Verb.HOLD: "held",
    Verb.RELEASE: "released",
    Verb.REQUEUE: "requeued",
    Verb.TIMELIMIT: "given a lower time limit",
    Verb.RESUBMIT: "submitted again",
    Verb.SHELL: "left",
    Verb.ATTACH: "joined by a sampler",
}


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A row of the queue, as far as an action asks for it. `job_id` may be that of many tasks:
    `17_[3-8%2]`."""

    job_id: str
    raw_job_id: str
    user: str
    state: str
    reason: str | None = None
    submit_time_s: float | None = None
    time_limit_s: int | None = None
    """None: no limit, or not known."""
    time_used_s: int | None = None
    can_requeue: bool | None = None
    num_nodes: int | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A job to which nothing is done, and why."""

    job_id: str
    reason: str

    @property
    def words(self) -> str:
        return f"{self.job_id}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and the jobs that it names."""

    argv: tuple[str, ...]
    job_ids: tuple[str, ...]
    run_dir: str | None = None
    """Of a local run, which has a supervisor instead of Slurm."""


@dataclass(frozen=True, slots=True)
class JobAction:
    """What will be done, before it is done. It is done exactly so."""

    verb: Verb
    steps: tuple[Step, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    """What one should know before one says yes."""
    waiting_run_dirs: tuple[tuple[str, str], ...] = ()
    """(job id, run directory) of runs whose script is not running: nobody but coach writes down how they
    end."""
    timeout_s: float = 12.0
    """How long each command may take."""
    script: str | None = None
    """What is submitted again."""
    script_file: str | None = None
    """Where it is written to before; None when it lies there already."""

    @property
    def commands(self) -> tuple[str, ...]:
        """Exactly what will be done, as command lines."""
        return tuple(join(step.argv) for step in self.steps)

    @property
    def job_ids(self) -> tuple[str, ...]:
        return tuple(job_id for step in self.steps for job_id in step.job_ids)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it: the jobs it was done to, in Slurm's words those that it was not, and what else Slurm
    said."""

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
