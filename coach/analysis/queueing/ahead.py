"""Where a waiting job stands among those that wait for the same partition, by Slurm's own priorities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coach.model.slurm.cluster import Job


@dataclass(frozen=True, slots=True)
class Standing:
    """How many waiting jobs there are in its partitions, and how many of them have a higher priority."""

    num_ahead: int
    num_waiting: int


def standing_of(job: Job, jobs: Iterable[Job]) -> Standing | None:
    """Rows of the queue are counted: an array that waits is one. None for a job that does not wait, is held,
    or has no known priority."""
    if job.state != "PENDING" or not job.priority:
        return None
    wanted = frozenset(job.partition.split(","))
    priorities = [
        each.priority
        for each in jobs
        if each.state == "PENDING"
        and each.priority
        and each.cluster == job.cluster
        and (each.partition == job.partition or not wanted.isdisjoint(each.partition.split(",")))
    ]
    return Standing(sum(1 for priority in priorities if priority > job.priority), len(priorities))
