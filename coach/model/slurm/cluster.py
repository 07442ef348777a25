"""Nodes, partitions and jobs, in Slurm's words."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

ACTIVE_STATES = frozenset(
    {
        *("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"),
        *("REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "STAGE_OUT"),
    }
)
"""Job states that can still change (squeue(1), JOB STATE CODES)."""

FINAL_STATES = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED"),
        *("BOOT_FAIL", "DEADLINE", "REVOKED"),
    }
)
"""Job states that end a job. A state that is in neither set is of a newer Slurm: the job counts as alive, and
the state shows as itself."""

_NOT_FAILED = frozenset({"COMPLETED", "CANCELLED", "PREEMPTED", "REVOKED"})

NOT_RECORDED = "NODE_FAIL"
"""The state of a local run whose end nobody recorded, as Slurm calls a job that is missing from its node."""
SUPERVISOR_DIED = "SupervisorDied"
MACHINE_RESTARTED = "MachineRestarted"
LAUNCH_INTERRUPTED = "LaunchInterrupted"
"""Reasons of local runs that could not say themselves how they ended."""

_WHOLE_SECOND_S = 1.0
"""Slurm cuts its times to whole seconds."""


def is_final(state: str | None) -> bool:
    """Whether a job in this state has ended. An unknown (None) state has not."""
    return state in FINAL_STATES


def has_failed(state: str | None) -> bool:
    """True if a job in this state has ended badly. Cancelled or preempted is not failed."""
    return is_final(state) and state not in _NOT_FAILED


@dataclass(frozen=True, slots=True)
class GpuCount:
    """GPUs of one type on a node. `type` is the GRES type, None when the site names none."""

    type: str | None
    total: int
    allocated: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """One node as `scontrol show nodes` tells it. `state` is Slurm's, lower case with its flags: `idle`,
    `mixed+drain`."""

    name: str
    state: str
    reason: str | None
    partitions: tuple[str, ...]
    num_cpus: int | None
    num_cpus_allocated: int | None
    memory_mib: int | None
    memory_allocated_mib: int | None
    gpus: tuple[GpuCount, ...]
    reason_user: str | None = None
    """Who gave the reason."""
    reason_time_s: float | None = None
    """When it was given."""
    gpu_indices: tuple[int, ...] | None = None
    """The indices of the GPUs in use; None where Slurm does not say."""
    owner: str | None = None
    """The one user whose jobs may run here now, where a job asked to share with nobody else."""
    features: tuple[str, ...] = ()
    cluster: str | None = None
    """The cluster that was asked by name; None for the one at hand."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. `num_gpus_per_node` is the largest GPU count of its nodes, 0 where it has none.

    What comes from the nodes is None where the site hides them.
    """

    name: str
    is_default: bool
    state: str
    time_limit_s: int | None
    default_time_s: int | None
    num_nodes: int
    num_nodes_idle: int | None
    num_cpus: int | None
    num_cpus_allocated: int | None
    gpus: tuple[GpuCount, ...]
    num_gpus_per_node: int | None
    is_exclusive: bool = False
    """Whether each of its jobs gets whole nodes."""
    allow_accounts: tuple[str, ...] | None = None
    """The only accounts that may use it; None: all."""
    allow_qos: tuple[str, ...] | None = None
    allow_groups: tuple[str, ...] | None = None
    cluster: str | None = None
    is_hidden: bool = False
    """True for Hidden=YES: sinfo and squeue show it with --all only, and coach always."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that are kept for some users for some time. `nodes` is a node set expression."""

    name: str
    state: str
    """`active` or `inactive`."""
    start_time_s: float | None
    end_time_s: float | None
    nodes: str | None
    num_nodes: int | None
    flags: tuple[str, ...]
    users: tuple[str, ...]
    accounts: tuple[str, ...]
    partition: str | None

    @property
    def is_maintenance(self) -> bool:
        return "MAINT" in self.flags


@dataclass(frozen=True, slots=True)
class GpuAllocation:
    """GPUs that a job has on some nodes, the same indices on each."""

    job_id: str
    nodes: tuple[str, ...]
    type: str | None
    count: int
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One row of the queue. `nodes` is Slurm's node set expression; times are epoch seconds or durations in
    seconds."""

    job_id: str
    name: str
    user: str
    state: str
    reason: str | None
    partition: str
    nodes: str | None
    num_nodes: int | None
    num_cpus: int | None
    num_gpus: int | None
    time_used_s: int | None
    time_left_s: int | None
    time_limit_s: int | None
    submit_time_s: float | None
    start_time_s: float | None
    end_time_s: float | None
    account: str | None = None
    qos: str | None = None
    work_dir: str | None = None
    exit_code: int | None = None
    """Exit status of the batch script, where it is known and the job has ended."""
    host: str | None = None
    """The machine that a local run was started on; None for Slurm's jobs."""
    is_visible: bool = True
    """False for a local run of another machine: its state is the last word known, of `last_word_time_s`."""
    last_word_time_s: float | None = None
    raw_job_id: str | None = None
    """The number that an array task or a part of a heterogeneous job has of its own: `23` for `17_1`."""
    dependency: str | None = None
    reservation: str | None = None
    priority: int | None = None
    """Slurm's number, larger is sooner; 0 is held."""
    scheduled_nodes: str | None = None
    """Where Slurm plans to start a pending job."""
    num_requeues: int | None = None
    command: str | None = None
    """The batch script, for own jobs."""
    stdout: str | None = None
    stderr: str | None = None
    """The paths as Slurm tells them: some versions with patterns (`%j`), and nothing for the default name."""
    cluster: str | None = None

    @property
    def estimated_start_s(self) -> float | None:
        """When Slurm expects a pending job to start: an estimate, made anew each time that the queue
        changes."""
        return self.start_time_s if self.state == "PENDING" else None

    def was_requeued_after(self, ended_time_s: float | None) -> bool:
        """Whether this row is newer than an end at this time (epoch seconds; None: not known): then the job
        goes on after it."""
        if ended_time_s is None or is_final(self.state) or self.state == "COMPLETING":
            return False
        # Requeueing sets the time of submission anew. The start of a pending job is a forecast.
        begins = (self.submit_time_s, None if self.state == "PENDING" else self.start_time_s)
        return any(begin is not None and begin > ended_time_s - _WHOLE_SECOND_S for begin in begins)


_JOB_FIELDS = tuple(field.name for field in fields(Job))
_values_of = attrgetter(*_JOB_FIELDS)


if TYPE_CHECKING:
    JobDraft = Job
else:
    JobDraft = make_dataclass(
        "JobDraft",
        [(each.name, each.type, field(default=each.default)) for each in fields(Job)],
        slots=True,
        eq=False,
        repr=False,
    )
    """The same fields, not frozen: it is made in a fourth of the time. `as_job` makes it a `Job`."""


def as_job(draft: JobDraft) -> Job:
    """The draft itself, frozen from now on: both classes have the same slots. A queue of 200,000 jobs is read
    a second sooner so."""
    draft.__class__ = Job
    return draft


def job_as_dict(job: Job) -> dict[str, Any]:
    """A job's fields by their names. Each is a plain value: nothing is copied, as `dataclasses.asdict` would,
    which takes twenty times as long."""
    return dict(zip(_JOB_FIELDS, _values_of(job), strict=True))
