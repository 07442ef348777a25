"""Find the own job that most recently ended badly, in run directories, queue and coach's memory."""

from __future__ import annotations

from collections.abc import Collection

from coach.analysis.jobs.belonging import is_job_id, is_of_another_cluster
from coach.analysis.judging.verdict_object import has_ended_badly, is_bad_state
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.slurm.cluster import Job
from coach.sources.io import Io
from coach.sources.machine.user import user_name
from coach.sources.runs.seen_jobs import SeenJobs
from coach.sources.runs.verdicts import Verdicts
from coach.workflows.judging.targets import jobs_source, known_cluster, known_runs, rows_of_queue


def newest_bad(settings: Settings, io: Io, backend: str) -> str | None:
    """The name of the own job or run that most recently ended badly; None if none is known. One question to
    Slurm."""
    user = user_name()
    own_runs = known_runs(settings, io)
    found = [
        (run.ended_time_s, run.run_id)
        for run in own_runs
        if is_bad_state(run.state) and not is_of_another_cluster(run, known_cluster(settings))
    ]
    jobs = [
        *_queue(settings, io, backend, user),
        *(each.job for each in SeenJobs(settings.cache_dir).read()[0]),
    ]
    found += [
        (job.end_time_s, job.job_id)
        for job in jobs
        if job.user == user and is_bad_state(job.state) and "[" not in job.job_id
    ]
    found += _remembered(settings, {run.run_id for run in own_runs})
    known = [(ended_s, target) for ended_s, target in found if ended_s is not None]
    return max(known)[1] if known else None


def _remembered(settings: Settings, here: Collection[str]) -> list[tuple[float | None, str]]:
    """Bad ends that coach remembers. The directory of a run may have been removed since: then it is left
    out."""
    return [
        (past.ended_s, past.target)
        for past in Verdicts(settings.cache_dir).read().values()
        if has_ended_badly(past) and (past.target in here or is_job_id(past.target))
    ]


def _queue(settings: Settings, io: Io, backend: str, user: str) -> tuple[Job, ...]:
    """An empty queue if Slurm does not answer: the runs and the memory still tell enough."""
    try:
        return rows_of_queue(jobs_source(io, backend, settings, user)) if backend == "slurm" else ()
    except UserError:
        return ()
