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
"""Job states in which a job has ended. A state in neither set comes from a newer Slurm: the job counts as
alive, and the state is shown unchanged."""

_NOT_FAILED = frozenset({"COMPLETED", "CANCELLED", "PREEMPTED", "REVOKED"})

NOT_RECORDED = "NODE_FAIL"
"""State of a local run whose end was not recorded: Slurm's state for a job that is missing from its node."""
SUPERVISOR_DIED = "SupervisorDied"
MACHINE_RESTARTED = "MachineRestarted"
LAUNCH_INTERRUPTED = "LaunchInterrupted"
"""Reasons of local runs that could not record their own end."""

_WHOLE_SECOND_S = 1.0
"""Slurm rounds its times down to whole seconds."""


def is_final(state: str | None) -> bool:
    """True if a job in this state has ended. An unknown state (None) has not."""
    return state in FINAL_STATES


def has_failed(state: str | None) -> bool:
    """True if a job in this state has ended badly. A cancelled or preempted job has not failed."""
    return is_final(state) and state not in _NOT_FAILED


@dataclass(frozen=True, slots=True)
class GpuCount:
    """GPUs of one type on a node. `type` is the GRES type; None if the site names no types."""

    type: str | None
    total: int
    allocated: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """One node as `scontrol show nodes` reports it. `state` is Slurm's state in lower case with its flags:
    `idle`, `mixed+drain`."""

    name: str
    state: str
    reason: str | None
    partitions: tuple[str, ...]
    num_cpus: int | None
    """The CPUs that jobs can have: those that Slurm keeps for the system (CoreSpecCount) are subtracted."""
    num_cpus_allocated: int | None
    memory_mib: int | None
    """The memory that jobs can have: what Slurm keeps for the system (MemSpecLimit) is subtracted."""
    memory_allocated_mib: int | None
    gpus: tuple[GpuCount, ...]
    reason_user: str | None = None
    """The user who set the reason."""
    reason_time_s: float | None = None
    """When the reason was set, in epoch seconds."""
    gpu_indices: tuple[int, ...] | None = None
    """Indices of the GPUs in use; None if Slurm does not report them."""
    owner: str | None = None
    """The only user whose jobs may run on the node now, because of a job with exclusive=user."""
    features: tuple[str, ...] = ()
    cluster: str | None = None
    """The cluster that was named in the query; None for the local cluster."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. `num_gpus_per_node` is the largest GPU count of its nodes; 0 without GPUs.

    Values that are derived from nodes are None if the site hides its nodes.
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
    """True if each job gets whole nodes."""
    allow_accounts: tuple[str, ...] | None = None
    """The only accounts that may use the partition; None: all."""
    allow_qos: tuple[str, ...] | None = None
    allow_groups: tuple[str, ...] | None = None
    deny_accounts: tuple[str, ...] = ()
    allow_submit_nodes: tuple[str, ...] | None = None
    """The only nodes from which jobs may be submitted (AllocNodes); None: all."""
    is_root_only: bool = False
    needs_reservation: bool = False
    cluster: str | None = None
    is_hidden: bool = False
    """True for Hidden=YES: sinfo and squeue show the partition only with --all; coach always shows it."""
    max_nodes: int | None = None
    """The most nodes of one job; None: no limit."""
    default_mem_per_node_mib: int | None = None
    """Memory of a job that asks for none; None: not set for the partition, as for the next one."""
    default_mem_per_cpu_mib: int | None = None
    max_mem_per_node_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that are kept free for some users for some time. `nodes` is a node set expression."""

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
    """GPUs of a job: the same indices on each of these nodes."""

    job_id: str
    nodes: tuple[str, ...]
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One row of the queue. `nodes` is Slurm's node set expression; times are epoch seconds, durations are
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
    """Exit status of the batch script, if the job has ended and Slurm reports it."""
    host: str | None = None
    """The machine on which a local run was started; None for Slurm's jobs."""
    is_visible: bool = True
    """False for a local run on another machine: its state is the last known one, from `last_word_time_s`."""
    last_word_time_s: float | None = None
    raw_job_id: str | None = None
    """The unique job id of an array task or of a part of a heterogeneous job: `23` for `17_1`."""
    dependency: str | None = None
    reservation: str | None = None
    priority: int | None = None
    """Slurm's priority: a larger number starts sooner; 0 means held."""
    scheduled_nodes: str | None = None
    """Nodes on which Slurm plans to start a pending job."""
    num_requeues: int | None = None
    command: str | None = None
    """The batch script; only for the user's own jobs."""
    stdout: str | None = None
    stderr: str | None = None
    """Output paths as Slurm reports them: some versions leave patterns (`%j`), and omit the default name."""
    cluster: str | None = None

    @property
    def estimated_start_s(self) -> float | None:
        """When Slurm expects a pending job to start: an estimate that Slurm computes anew whenever the queue
        changes."""
        return self.start_time_s if self.state == "PENDING" else None

    def was_requeued_after(self, ended_time_s: float | None) -> bool:
        """True if this row is newer than an end at `ended_time_s` (epoch seconds; None: unknown). The job
        then runs again after that end."""
        if ended_time_s is None or is_final(self.state) or self.state == "COMPLETING":
            return False
        # A requeue resets the submission time. The start time of a pending job is only a forecast.
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
    """A mutable `Job` with the same fields, created in a quarter of the time. `as_job` makes it a `Job`."""


def as_job(draft: JobDraft) -> Job:
    """Turn the draft itself into a frozen `Job`: both classes have the same slots. A queue of 200,000 jobs is
    read one second faster this way."""
    draft.__class__ = Job
    return draft


def job_as_dict(job: Job) -> dict[str, Any]:
    """The fields of a job by name. Each is a plain value, so nothing is copied; `dataclasses.asdict` would
    copy each and take twenty times as long."""
    return dict(zip(_JOB_FIELDS, _values_of(job), strict=True))
