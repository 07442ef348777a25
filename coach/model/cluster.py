"""Nodes, partitions and jobs, in Slurm's words."""

from __future__ import annotations

from dataclasses import dataclass

ACTIVE_STATES = frozenset(
    {
        *("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"),
        *("REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "STAGE_OUT"),
    }
)
"""Job states that can still change; every other state is final (squeue(1), JOB STATE CODES)."""

SUPERVISOR_DIED = "SupervisorDied"
MACHINE_RESTARTED = "MachineRestarted"
"""Reasons of local runs that could not say themselves how they ended."""

_WHOLE_SECOND_S = 1.0
"""Slurm cuts its times to whole seconds."""


def is_final(state: str | None) -> bool:
    """Whether a job in this state has ended. An unknown (None) state has not."""
    return state is not None and state not in ACTIVE_STATES


@dataclass(frozen=True, slots=True)
class GpuCount:
    """GPUs of one type on a node. `type` is the GRES type, None when the site names none."""

    type: str | None
    total: int
    allocated: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """One node as `scontrol show nodes` tells it. `state` is Slurm's, lower case with its flags: `idle`, `mixed+drain`."""

    name: str
    state: str
    reason: str | None
    partitions: tuple[str, ...]
    num_cpus: int | None
    num_cpus_allocated: int | None
    memory_mib: int | None
    memory_allocated_mib: int | None
    gpus: tuple[GpuCount, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. `num_gpus_per_node` is the largest GPU count of its nodes, 0 where it has none."""

    name: str
    is_default: bool
    state: str
    time_limit_s: int | None
    default_time_s: int | None
    num_nodes: int
    num_nodes_idle: int
    num_cpus: int | None
    num_cpus_allocated: int | None
    gpus: tuple[GpuCount, ...]
    num_gpus_per_node: int


@dataclass(frozen=True, slots=True)
class Job:
    """One row of the queue. `nodes` is Slurm's node set expression; times are epoch seconds or durations in seconds."""

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

    def was_requeued_after(self, ended_time_s: float | None) -> bool:
        """Whether this row is newer than an end at this time (epoch seconds; None: not known): then the job goes on after it."""
        if ended_time_s is None or is_final(self.state) or self.state == "COMPLETING":
            return False
        # Requeueing sets the time of submission anew. The start of a pending job is a forecast.
        begins = (self.submit_time_s, None if self.state == "PENDING" else self.start_time_s)
        return any(begin is not None and begin > ended_time_s - _WHOLE_SECOND_S for begin in begins)
