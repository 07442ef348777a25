"""Find the work that would be lost if a running job ended now. Called only when a person is about to end it.

Searches one directory, within the same bounds as for logs. A checkpoint that another job of the same directory
may have written does not count: a person would rely on it. Slurm is asked for the job's path and, once, for
the user's own jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coach import runs
from coach.analysis.spelling.slurm import format_time
from coach.config import Settings
from coach.model.reading import JobList
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.checkpoint_files import Saved, SavedFound
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.machine.user import user_name
from coach.sources.runs.checkpoint_files import newest_saved, without_steps
from coach.sources.slurm.client import JobsSource
from coach.workflows.judging.job_files import (
    MAX_DEPTH,
    Kind,
    Walk,
    job_names,
    names_job,
    rivals_of,
    window_of,
)
from coach.workflows.judging.targets import output_paths_of

_OF_A_RUN = "run.json"
_WritersOf = Callable[[str, float], tuple[str, ...]]
"""Returns the other jobs that may have written a path at a time."""


def _nobody(path: str, time_s: float) -> tuple[str, ...]:
    return ()


def find_saved(io: Io, directory: Path, from_s: float, writers_of: _WritersOf = _nobody) -> SavedFound:
    """The newest checkpoints below a directory that were written at or after `from_s`.

    Run directories of coach below it are left out: a run's checkpoints are searched in its own directory.
    """
    walk = Walk(io, directory, MAX_DEPTH)
    found = tuple(walk.paths())
    of_runs = tuple(path.removesuffix(_OF_A_RUN) for path in found if path.endswith(f"/{_OF_A_RUN}"))
    paths = tuple(path for path in found if not path.startswith(of_runs))
    return SavedFound(
        str(directory),
        newest_saved(io, directory, paths, from_s, writers_of),
        walk.is_whole,
        walk.problem,
    )


def lost_of_run(io: Io, run: Run) -> tuple[str, ...]:
    """The loss if this run of coach's ends now, as lines, on any backend; empty if it has ended or not
    begun."""
    if is_final(run.state) or run.started_time_s is None:
        return ()
    return _lost(io, Path(run.run_dir), run.started_time_s, run.num_gpus)


def lost_of_job(io: Io, job_id: str, run_dir: Path | None, settings: Settings) -> tuple[str, ...]:
    """The loss if this running job ends now, as lines: from the run's directory if coach launched it, else
    from the job's working directory."""
    paths = output_paths_of(io, settings)
    job = paths.row(job_id)
    if job is None or job.start_time_s is None:
        return ()
    if run_dir is not None:
        return _lost(io, run_dir, job.start_time_s, job.num_gpus)
    if job.work_dir is None:
        return ()
    found = _found_of_job(io, job, Path(job.work_dir), paths)
    return lost_lines(found, job.start_time_s, job.num_gpus, io.now())


def _lost(io: Io, run_dir: Path, start_s: float, num_gpus: int | None) -> tuple[str, ...]:
    directory = runs.RunPaths(run_dir).checkpoints_dir
    found = _found(io, directory, 0.0)
    if found.problem is not None:
        found = SavedFound(str(directory))  # the run creates the folder with its first checkpoint
    return lost_lines(found, start_s, num_gpus, io.now())


def _found_of_job(io: Io, job: Job, directory: Path, paths: OutputPaths) -> SavedFound:
    """The checkpoints of a job that coach did not launch, by the rules for its metrics: other jobs of the
    directory may have written them, unless the path has the job's number."""
    for reading in JobsSource(io, user_name(), 0.0, is_all=False).poll():
        if isinstance(reading.payload, JobList):
            paths.learn(reading.payload.jobs)
    window, is_named = window_of(job), names_job(job)
    rivals = rivals_of(job, window, paths)
    from_s, _ = window.times_of(Kind.METRICS)

    def writers_of(path: str, time_s: float) -> tuple[str, ...]:
        return () if is_named(without_steps(path)) else rivals.writers_at(time_s)

    return _found(io, directory, from_s, writers_of)


def _found(io: Io, directory: Path, from_s: float, writers_of: _WritersOf = _nobody) -> SavedFound:
    try:
        return find_saved(io, directory, from_s, writers_of)
    except OSError as error:
        return SavedFound(str(directory), problem=error.strerror or str(error))


# The words. A torn checkpoint is reported as torn: a person who relies on it loses more.

_HOUR_S = 3600.0


def lost_lines(
    found: SavedFound, start_s: float | None, num_gpus: int | None, now_s: float
) -> tuple[str, ...]:
    """The loss of a job that began at `start_s`, in GPU-hours, and the checkpoints that cannot be relied
    on."""
    if found.problem is not None:
        return (f"whether a checkpoint is there is not known: {found.directory}: {found.problem}",)
    torn = tuple(f"incomplete: {_named(each, found)}: {each.torn}" for each in found.torn)
    torn += _doubtful(found, now_s)
    newest = found.newest
    since_s = start_s if newest is None else max(newest.time_s, start_s or 0.0)
    cost = _cost(since_s, num_gpus, now_s)
    if newest is not None:
        old = format_time(max(0, round(now_s - newest.time_s)))
        if newest.time_s != since_s:  # it was requeued since
            return (
                (
                    f"lost: {cost} since it began again from {_named(newest, found)}, the newest complete "
                    f"checkpoint, {old} old"
                ),
                *torn,
            )
        return (
            f"lost: {cost} since the newest complete checkpoint, {_named(newest, found)}, {old} old",
            *torn,
        )
    where = found.directory if found.is_whole else f"the searched part of {found.directory}"
    return (f"lost: {cost}: no complete checkpoint of this attempt was found in {where}", *torn)


def _doubtful(found: SavedFound, now_s: float) -> tuple[str, ...]:
    """The newest checkpoint that may be another job's."""
    saved = found.doubtful
    if saved is None:
        return ()
    old = format_time(max(0, round(now_s - saved.time_s)))
    jobs = "job" if len(saved.may_be_of) == 1 else "jobs"
    return (
        (
            f"not counted: {_named(saved, found)}, {old} old: it may belong to {jobs} "
            f"{job_names(saved.may_be_of)}, in the same directory at that time"
        ),
    )


def _named(saved: Saved, found: SavedFound) -> str:
    """Its path relative to the directory: the whole path would push everything else off a narrow screen."""
    step = "" if saved.step is None else f", step {saved.step}"
    return f"{saved.path.removeprefix(f'{found.directory}/')} ({saved.made_by}{step})"


def _cost(since_s: float | None, num_gpus: int | None, now_s: float) -> str:
    if since_s is None:
        return "all its work"
    seconds = max(0.0, now_s - since_s)
    if num_gpus:
        return f"{num_gpus * seconds / _HOUR_S:.1f} GPU-hours"
    return f"{format_time(round(seconds))} of work"
