"""What the site's accounting says: limits, fair share, what makes up a priority, how well ended jobs used
what they had.

Every part of it is optional: a site may have no accounting, or hide it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from coach.model.slurm.cluster import Job

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """One part of a picture, or why it is not there. The rest of the picture works without it."""

    value: T | None
    error: str | None = None
    num_bad_rows: int = 0


@dataclass(frozen=True, slots=True)
class PriorityFactors:
    """What the priority of one pending job is made of, each factor already weighted. None: this Slurm does
    not tell it."""

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
    """One user's share of one account. `factor` is between 0 and 1; 0.5 is what was promised, less is
    overused (classic) or later in line."""

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
    """The limits of one association or one QOS that are set, by their names in sacctmgr: `MaxJobs` → `4`."""

    kind: str
    """`association` or `qos`."""
    name: str
    """The QOS, or the account of the association."""
    user: str | None
    partition: str | None
    qos: tuple[str, ...]
    """The QOS that an association may use."""
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """How much of what a job had it used, in percent. None: not measured."""

    cpu_pct: float | None = None
    memory_pct: float | None = None
    memory_used_mib: float | None = None
    """The most that one step used at once, all tasks together."""
    memory_asked_mib: float | None = None
    gpu_pct: float | None = None
    """The mean of its GPUs at the end of what was measured."""
    time_pct: float | None = None
    """Of its time limit."""


@dataclass(frozen=True, slots=True)
class GpuMeans:
    """One GPU over a whole job. None: not measured."""

    gpu: int
    """Its minor number on the node."""
    utilization_pct: float | None = None
    """The mean."""
    memory_used_mib: float | None = None
    """The most at once."""
    memory_total_mib: float | None = None


@dataclass(frozen=True, slots=True)
class NodeMeans:
    """What a job used of one node, over all of its time. None: not measured."""

    node: str
    num_cpus: int | None = None
    """Allotted to the job."""
    cpu_time_s: float | None = None
    """Seconds of processor, all CPUs together."""
    memory_used_mib: float | None = None
    """The most at once."""
    memory_allotted_mib: float | None = None
    gpus: tuple[GpuMeans, ...] = ()


@dataclass(frozen=True, slots=True)
class JobSummary:
    """What a site's jobstats measured of a job that has ended: one number of each kind for all of its time,
    so that nothing in it says when."""

    time_s: float | None
    """How long the job ran."""
    nodes: tuple[NodeMeans, ...]
    gap: str = ""
    """Why jobstats measured nothing, in words; empty where it did."""


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job as it was, in the form of the queue, with where that is known from."""

    job: Job
    efficiency: Efficiency = field(default_factory=Efficiency)
    source: str = "sacct"
    """`sacct`, `run` (its run directory) or `seen` (the queue, when it was last seen there)."""
    run_id: str | None = None
    last_seen_s: float | None = None
    """When the queue was last seen with it; its state may have changed since, if it is not final."""
