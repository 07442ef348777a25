"""Rank a waiting job among the jobs that wait for the same partition, by Slurm's priorities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coach.model.slurm.cluster import Job, is_final

MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """A job's place among the waiting jobs of its partitions."""

    num_ahead: int
    """The number of waiting jobs with a higher priority."""
    num_waiting: int
    """The number of waiting jobs, this one included."""
    first: tuple[str, ...] = ()
    """Ids of up to MAX_NAMED jobs ahead, the highest priority first."""
    same_name: tuple[str, ...] = ()
    """Ids of up to MAX_NAMED jobs that a singleton waits for: its user's other jobs of the same name."""


def standing_of(job: Job, jobs: Iterable[Job]) -> Standing | None:
    """Find the job's standing. A waiting array is one row of the queue, and counts as one job.

    None if the job does not wait, is held, or has no known priority. For a singleton without a priority, the
    standing has only `same_name`.
    """
    if job.state != "PENDING":
        return None
    if not job.priority:  # Slurm gives no priority to a job that waits for other jobs
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
    """Ids of the user's other jobs of the same name, if the job is a singleton."""
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
