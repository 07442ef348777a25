"""Combine the run directories with the queue, for commands that look once.

If a node dies, run.json says RUNNING for ever, because no process was left to correct it. The queue is asked
once for all runs, and only if it could correct one of them. This module decides if a run may still be alive,
for callers that remove runs: unknown counts as alive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from coach import runs
from coach.analysis.jobs.belonging import RowsByTask, has_lost_its_job, is_of_another_cluster
from coach.config import DEFAULT_CLUSTER, Settings
from coach.model.errors import UserError
from coach.model.reading import JobList, RunList
from coach.model.slurm.cluster import LAUNCH_INTERRUPTED, Job, is_final
from coach.model.training.other_machine import place
from coach.model.training.run import Run, Submission
from coach.sources.io import Io
from coach.sources.runs.local_process import (
    LAUNCH_MAY_LAST_S,
    is_command_known,
    look,
    processes_of_runs,
)
from coach.sources.runs.run_list import RunListSource, read_listed_run
from coach.sources.slurm.client import own_queue
from coach.workflows.jobs.lost_submits import find_jobs

SILENT_S = 24 * 3600.0
"""A run that no source can confirm counts as alive until its files are this old, in seconds: the sampler
writes every second."""
_JUST_LAUNCHED = "it was launched a moment ago"
_MAX_SUBMIT_SKEW_S = 300.0


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run, its state corrected by the queue."""

    run: Run
    alive_because: str | None
    """Why it is alive, or may be; None if it is not."""
    is_forgotten: bool = False
    """True if Slurm has forgotten its job and nothing recorded its end; its state is then None."""


@dataclass(frozen=True, slots=True)
class KnownRuns:
    """Newest first."""

    runs: tuple[KnownRun, ...]
    problems: tuple[str, ...]
    """Run directories that cannot be read, one line each."""
    queue_error: str | None = None
    """Why the queue did not answer; None also if it was not asked."""


@dataclass(frozen=True, slots=True)
class _Queue:
    """The user's jobs in one answer of the queue."""

    jobs: tuple[Job, ...]
    rows: RowsByTask
    num_unreadable: int


def may_be_corrected(run: Run) -> bool:
    """True if the queue may know more than the run's directory: as long as the run's end is not recorded."""
    return run.backend == "slurm" and not is_final(run.state)


def read_known_runs(
    settings: Settings,
    io: Io,
    user: str,
    is_asked_about: Callable[[Run], bool] = may_be_corrected,
    *,
    is_indexed: bool = False,
) -> KnownRuns:
    """Read all runs; ask the queue if it could correct one of them. Raises UserError if the runs root cannot
    be read.

    `is_indexed`: take ended runs from the index, without the details that it leaves out.
    """
    source = (
        RunListSource.indexed(io, settings.runs_root, settings.cache_dir)
        if is_indexed
        else RunListSource(io, settings.runs_root)
    )
    listed = _list(source)
    queue, error = _ask_queue(io, user) if any(map(is_asked_about, listed.runs)) else (None, None)
    if queue is not None:
        # A job that ended in between has recorded its end by now. In the opposite order it could be in
        # neither answer.
        listed = _list(source)
    now_s = io.now()
    # After the runs were read: a process started since then belongs to a run that was not final at that time.
    processes = processes_of_runs() if any(run.backend != "slurm" for run in listed.runs) else {}
    judged = tuple(
        _judge_local(run, processes, io, now_s)
        if run.backend != "slurm"
        else _judge(run, queue, error, settings, io, now_s)
        for run in listed.runs
    )
    return KnownRuns(judged, listed.problems, error)


def read_known_run(run_dir: Path, settings: Settings, io: Io, user: str) -> KnownRun:
    """One run, and what the queue knows of it. Raises OSError or UserError."""
    run = read_listed_run(io, run_dir)
    if run.backend != "slurm":
        return _judge_local(run, processes_of_runs(), io, io.now())
    return _judge(run, *_ask_queue(io, user), settings, io, io.now())


def _list(source: RunListSource) -> RunList:
    for reading in source.poll():
        if isinstance(reading.payload, RunList):
            return reading.payload
        raise UserError(reading.error or "the runs cannot be read")
    return RunList((), ())


def _ask_queue(io: Io, user: str) -> tuple[_Queue | None, str | None]:
    reading = own_queue(io, user)
    if not isinstance(reading.payload, JobList):
        return None, reading.error
    jobs = reading.payload.jobs
    return _Queue(jobs, RowsByTask({job.job_id: job for job in jobs}), reading.num_bad_rows), None


def _judge(
    run: Run,
    queue: _Queue | None,
    error: str | None,
    settings: Settings,
    io: Io,
    now_s: float,
) -> KnownRun:
    if _other_cluster(run, settings):
        why = f"it belongs to cluster {run.cluster}, whose queue coach does not query from here"
        return KnownRun(run, None if is_final(run.state) else why)
    if has_lost_its_job(run):
        return _judge_lost(run, queue, error, settings, io, now_s)
    if queue is None:
        return KnownRun(run, _without_queue(run, error, now_s))
    row = _row_of(run, queue.rows)
    if row is not None and not is_final(row.state):
        if is_final(run.state) and not row.was_requeued_after(run.ended_time_s):
            return KnownRun(run, f"job {row.job_id} is {row.state}")
        return KnownRun(replace(run, state=row.state, ended_time_s=None), f"job {row.job_id} is {row.state}")
    if is_final(run.state):
        return KnownRun(run, None)
    if row is not None:
        return KnownRun(replace(run, state=row.state, ended_time_s=row.end_time_s), None)
    if run.created_time_s is not None and abs(now_s - run.created_time_s) < LAUNCH_MAY_LAST_S:
        return KnownRun(run, _JUST_LAUNCHED)
    if queue.num_unreadable:
        rows = "1 row" if queue.num_unreadable == 1 else f"{queue.num_unreadable} rows"
        return KnownRun(run, f"{rows} of the queue cannot be read: it may be the run's job")
    sound = _sound_elsewhere(run, settings, io, now_s)
    return KnownRun(replace(run, state=None), sound, is_forgotten=True)


def _judge_lost(
    run: Run, queue: _Queue | None, error: str | None, settings: Settings, io: Io, now_s: float
) -> KnownRun:
    """Judge a run whose launch was interrupted, from Slurm's record of it."""
    jobs = queue.jobs if queue is not None else None
    standing = find_jobs([run], jobs, error, settings, now_s)[run.run_id]
    run, job = standing.run, standing.job
    if job is not None:
        known = replace(run, state=job.state, ended_time_s=job.end_time_s if is_final(job.state) else None)
        return KnownRun(known, None if is_final(job.state) else f"job {job.job_id} is {job.state}")
    known = replace(run, submission=standing.submission)
    if standing.submission in (Submission.LAUNCHING, Submission.UNKNOWN):
        return KnownRun(known, standing.words)
    is_young = run.created_time_s is not None and abs(now_s - run.created_time_s) < LAUNCH_MAY_LAST_S
    because = _JUST_LAUNCHED if is_young else _sound_elsewhere(run, settings, io, now_s)
    return KnownRun(replace(known, state=None), because)


def _other_cluster(run: Run, settings: Settings) -> bool:
    return is_of_another_cluster(run, _cluster(settings))


def _cluster(settings: Settings) -> str | None:
    return settings.cluster if settings.cluster != DEFAULT_CLUSTER else None


def _without_queue(run: Run, error: str | None, now_s: float) -> str | None:
    if not is_final(run.state):
        return f"the queue does not answer: {error}" if error else "the queue was not queried"
    is_recent = run.ended_time_s is None or now_s - run.ended_time_s < SILENT_S
    return (
        f"it may have been requeued, and the queue does not answer: {error}" if error and is_recent else None
    )


def _judge_local(run: Run, processes: Mapping[str, int], io: Io, now_s: float) -> KnownRun:
    """A local run is alive while one of its processes is.

    `processes`: run id → the pid of a process that names this run.
    """
    if not is_final(run.state):
        if not run.is_visible:
            return KnownRun(run, f"it is {place(run.host)}, not visible from here")
        if run.host is not None:
            return KnownRun(run, f"it is {run.state} on this machine")
        return KnownRun(run, _sound_of(run, io, now_s))  # run.json names no process
    if run.run_id in processes:
        return KnownRun(run, f"its process {processes[run.run_id]} is running")
    if run.ended_time_s is None and _may_have_left_a_command(run):
        # Its supervisor died. The command may still run, and only its files can show that.
        sound = _sound_of(run, io, now_s)
        return KnownRun(
            run, f"run.json does not name the process of its command, and {sound}" if sound else None
        )
    return KnownRun(run, None)


def _may_have_left_a_command(run: Run) -> bool:
    """True if the run had a supervisor and run.json does not name the process of its command."""
    try:
        value = runs.read_json(runs.RunPaths(run.run_dir).run_json)
    except runs.RunFileError:
        return True
    is_interrupted = look(value).reason == LAUNCH_INTERRUPTED
    return not is_interrupted and not is_command_known(value)


def _sound_elsewhere(run: Run, settings: Settings, io: Io, now_s: float) -> str | None:
    """A sign of life, for clusters that share a home directory without naming themselves: the job may be
    another cluster's."""
    has_cluster = None not in (run.cluster, _cluster(settings))
    return None if has_cluster else _sound_of(run, io, now_s)


def _sound_of(run: Run, io: Io, now_s: float) -> str | None:
    """The name of a file of the run that was written lately, in words; None if there is none."""
    paths = runs.RunPaths(run.run_dir)
    files = [paths.run_json, paths.stdout_log, paths.stderr_log]
    for folder in (paths.telemetry_dir, paths.metrics_dir):
        try:
            files += [folder / name for name in io.list_dir(folder)]
        except OSError:
            continue
    for file in files:
        try:
            silent_s = now_s - io.modified_s(file)
        except OSError:
            continue
        if silent_s < SILENT_S:
            return f"{Path(file).name} was written within the last day"
    return None


def _row_of(run: Run, rows: RowsByTask) -> Job | None:
    """Its row. A cluster that was set up anew counts jobs from 1 again: an older run's number then means
    another job. A job that was submitted inside an array task has taken the number of that task.

    Waiting tasks share a row, whose raw job id is not theirs: it counts as the run's.
    """
    row = rows.get(run.job_id or "")
    is_known = row is not None and row.state != "PENDING" and None not in (row.raw_job_id, run.raw_job_id)
    if row is not None and is_known and row.raw_job_id != run.raw_job_id:
        row = rows.get(run.raw_job_id or "")
    if row is None or row.submit_time_s is None or run.created_time_s is None:
        return row
    return row if row.submit_time_s >= run.created_time_s - _MAX_SUBMIT_SKEW_S else None
