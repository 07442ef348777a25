"""Data of the site's accounting: limits, fair share, priority factors, and how well ended jobs used their
resources.

Every part is optional: a site may have no accounting, or hide it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from coach.model.slurm.cluster import Job

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """One part of a report, or the error in its place. The other parts work without it."""

    value: T | None
    error: str | None = None
    num_bad_rows: int = 0


@dataclass(frozen=True, slots=True)
class PriorityFactors:
    """The factors of one pending job's priority, each already weighted. None: this version of Slurm does not
    report it."""

    job_id: str
    user: str
    partition: str | None
    priority: int | None
    age: int | None
    fair_share: int | None
    job_size: int | None
    partition_factor: int | None
    qos: int | None
    association: int | None
    nice: int | None
    tres: str | None


@dataclass(frozen=True, slots=True)
class FairShare:
    """One user's share of one account. `factor` is between 0 and 1. With classic fair share, 0.5 means that
    exactly the promised share was used, and a lower value means overuse. With fair tree, a lower value means
    a later place in the order."""

    account: str
    user: str | None
    raw_shares: str | None
    """A number, or `parent`."""
    normalized_shares: float | None
    raw_usage: int | None
    effective_usage: float | None
    factor: float | None


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one association or one QOS. `values` has sacctmgr's names: `MaxJobs` → `4`."""

    kind: str
    """`association` or `qos`."""
    name: str
    """The name of the QOS, or the account of the association."""
    user: str | None
    partition: str | None
    qos: tuple[str, ...]
    """The QOS names that an association may use."""
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The used part of a job's resources, in percent. None: not measured."""

    cpu_pct: float | None = None
    memory_pct: float | None = None
    memory_used_mib: float | None = None
    """Peak memory of the step that used the most, summed over its tasks, in MiB."""
    memory_asked_mib: float | None = None
    gpu_pct: float | None = None
    """Mean utilization of its GPUs at the end of the measurement, in percent."""
    time_pct: float | None = None
    """Percent of the time limit."""


@dataclass(frozen=True, slots=True)
class GpuMeans:
    """Use of one GPU over a whole job. None: not measured."""

    gpu: int
    """The minor number of the GPU on its node."""
    utilization_pct: float | None = None
    """Mean over the job."""
    memory_used_mib: float | None = None
    """Peak."""
    memory_total_mib: float | None = None


@dataclass(frozen=True, slots=True)
class NodeMeans:
    """Use of one node over a whole job. None: not measured."""

    node: str
    num_cpus: int | None = None
    """CPUs allotted to the job."""
    cpu_time_s: float | None = None
    """CPU seconds, summed over all CPUs."""
    memory_used_mib: float | None = None
    """Peak."""
    memory_allotted_mib: float | None = None
    gpus: tuple[GpuMeans, ...] = ()


@dataclass(frozen=True, slots=True)
class JobSummary:
    """Measurements of an ended job by the site's jobstats: one number per quantity for the whole job, without
    times."""

    time_s: float | None
    """Run time of the job in seconds."""
    nodes: tuple[NodeMeans, ...]
    gap: str = ""
    """Why jobstats measured nothing; "" if it measured."""


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job of the past in the form of a queue row, with the source of its data."""

    job: Job
    efficiency: Efficiency = field(default_factory=Efficiency)
    source: str = "sacct"
    """`sacct`, `run` (its run directory) or `seen` (the last time it was in the queue)."""
    run_id: str | None = None
    last_seen_s: float | None = None
    """Time of the last queue that held the job, in epoch seconds. A state that is not final may have changed
    since then."""
