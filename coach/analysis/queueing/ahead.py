"""Rank a waiting job among those that wait for the same partition, by Slurm's own priorities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coach.model.slurm.cluster import Job


@dataclass(frozen=True, slots=True)
class Standing:
    """The number of waiting jobs in its partitions, and of those with a higher priority."""

    num_ahead: int
    num_waiting: int


def standing_of(job: Job, jobs: Iterable[Job]) -> Standing | None:
    """Count rows of the queue: an array that waits is one. None if the job does not wait, is held, or has no
    known priority."""
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
