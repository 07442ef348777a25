"""One's own jobs that run, wait, or ended within a day: what is judged when nobody names a target.

The queue is asked once, for all of them. Slurm forgets a job minutes after its end: those that ended earlier are known from the run
directories, and from what was seen in the queue by any command or screen of coach.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coach.analysis.jobs.belonging import is_of_another_cluster
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.reading import JobList
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.runs.run_index import RunIndex
from coach.sources.runs.seen_jobs import SeenJobs, remember_jobs
from coach.workflows.judging.targets import (
    Target,
    TargetKind,
    jobs_source,
    known_cluster,
    list_runs,
    locate_target,
    output_paths_of,
)

ENDED_WITHIN_S = 86400.0
MAX_TARGETS = 200
"""Each is read whole: of an array of thousands those that run or went wrong come first, and how many were left out is said."""


@dataclass(frozen=True, slots=True)
class OwnTargets:
    """`queue` and `output_paths` are what was learned on the way, so that nothing is asked again."""

    targets: tuple[Target, ...]
    queue: JobList
    output_paths: OutputPaths
    num_left_out: int


def own_targets(settings: Settings, io: Io, user: str, backend: str) -> OwnTargets:
    """Each job once. Raises UserError when the queue does not answer."""
    jobs = _ask(settings, io, user, backend)
    since_s = io.now() - ENDED_WITHIN_S
    known = list_runs(io, settings.runs_root, RunIndex(settings.cache_dir, settings.runs_root))
    recent = [job for job in jobs if not is_final(job.state) or _is_since(job.end_time_s, since_s)]
    recent.sort(key=lambda job: (job.state != "RUNNING", job.state in ("PENDING", "COMPLETED")))
    targets = [locate_target(job.job_id, settings, io, known, job) for job in recent[:MAX_TARGETS]]
    taken = {str(target.path) for target in targets}
    targets += [
        Target(run.run_id, TargetKind.RUN, Path(run.run_dir))
        for run in known
        if run.backend == backend and run.run_dir not in taken and _has_ended_since(run, since_s, settings)
    ]
    paths = output_paths_of(io, settings)
    paths.learn(jobs)
    gone = list(_gone(settings, io, user, jobs, known, since_s)) if backend == "slurm" else []
    paths.learn(gone)
    targets += [Target(job.job_id, TargetKind.JOB) for job in gone]
    ended = [job for job in gone if is_final(job.state)]
    num_left_out = max(0, len(recent) - MAX_TARGETS) + max(0, len(targets) - MAX_TARGETS)
    queue = JobList((*jobs, *ended), False, has_outputs=backend == "slurm")
    return OwnTargets(tuple(targets[:MAX_TARGETS]), queue, paths, num_left_out)


def _ask(settings: Settings, io: Io, user: str, backend: str) -> tuple[Job, ...]:
    for reading in jobs_source(io, backend, settings, user).poll():
        if reading.error is not None:
            raise UserError(reading.error)
        if isinstance(reading.payload, JobList):
            return reading.payload.jobs
    return ()


def _has_ended_since(run: Run, since_s: float, settings: Settings) -> bool:
    is_here = not is_of_another_cluster(run, known_cluster(settings))
    return is_here and is_final(run.state) and _is_since(run.ended_time_s, since_s)


def _is_since(time_s: float | None, since_s: float) -> bool:
    return time_s is not None and time_s >= since_s


def _gone(
    settings: Settings, io: Io, user: str, jobs: tuple[Job, ...], known: tuple[Run, ...], since_s: float
) -> Iterator[Job]:
    """Jobs that coach did not launch and the queue has forgotten, the newest of each number; where nobody saw them write, nothing can be read."""
    memory = SeenJobs(settings.cache_dir)
    remember_jobs(memory, jobs, user, io.now())
    told = {job.job_id for job in jobs} | {run.job_id for run in known}
    for seen in memory.read()[0]:
        job = seen.job
        when_s = job.end_time_s if job.end_time_s is not None else seen.last_seen_s
        if job.job_id in told or "[" in job.job_id or job.stdout is None or job.state == "PENDING":
            continue
        told.add(job.job_id)
        if job.user == user and _is_since(when_s, since_s):
            yield job
