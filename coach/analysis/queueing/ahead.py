"""Rank a waiting job among those that wait for the same partition, by Slurm's own priorities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coach.model.slurm.cluster import Job, is_final

MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """The number of waiting jobs in its partitions, and of those with a higher priority."""

    num_ahead: int
    num_waiting: int
    first: tuple[str, ...] = ()
    """The first of those ahead, highest priority first."""
    same_name: tuple[str, ...] = ()
    """The user's other jobs of this name, for a singleton: it waits for their end."""


def standing_of(job: Job, jobs: Iterable[Job]) -> Standing | None:
    """Count rows of the queue: an array that waits is one. None if the job does not wait, is held, or has no
    known priority; a singleton without one names only the jobs of its name."""
    if job.state != "PENDING":
        return None
    if not job.priority:  # Slurm gives none to a job that waits for others
        names = same_name(job, jobs)
        return Standing(0, 0, (), names) if names else None
    wanted = frozenset(job.partition.split(","))
    known = tuple(jobs)
    waiting = [
        (each.priority, each.job_id)
        for each in known
        if each.state == "PENDING"
        and each.priority
        and each.cluster == job.cluster
        and (each.partition == job.partition or not wanted.isdisjoint(each.partition.split(",")))
    ]
    ahead = sorted((each for each in waiting if each[0] > job.priority), key=lambda each: -each[0])
    first = tuple(job_id for _, job_id in ahead[:MAX_NAMED])
    return Standing(len(ahead), len(waiting), first, same_name(job, known))


def same_name(job: Job, jobs: Iterable[Job]) -> tuple[str, ...]:
    """The user's other jobs of its name, if it is a singleton."""
    if "singleton" not in (job.dependency or ""):
        return ()
    named = (job.name, job.user, job.cluster)
    others = (
        each.job_id
        for each in jobs
        if (each.name, each.user, each.cluster) == named
        and each.job_id != job.job_id
        and not is_final(each.state)
    )
    return tuple(others)[:MAX_NAMED]
