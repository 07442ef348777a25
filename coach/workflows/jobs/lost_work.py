"""Find the work that would be lost if a running job ended now. Called only when a person is about to end it.

Searches one directory, within the same bounds as for logs. A checkpoint that another job may have written
does not count.
"""

from __future__ import annotations

from pathlib import Path

from coach import runs
from coach.analysis.spelling.slurm import format_time
from coach.config import Settings
from coach.model.slurm.cluster import is_final
from coach.model.training.checkpoint_files import Saved, SavedFound
from coach.model.training.run import Run
from coach.sources.io import Io, for_folder
from coach.sources.runs.run_files import read_run
from coach.workflows.jobs.own_checkpoints import saved_below, saved_of_job
from coach.workflows.judging.directory_files import job_names
from coach.workflows.judging.targets import output_paths_of


def lost_of_run(io: Io, run: Run) -> tuple[str, ...]:
    """The loss if this run of coach's ends now, as lines, on any backend; empty if it has ended or not
    begun."""
    if is_final(run.state) or run.started_time_s is None:
        return ()
    return _lost(io, Path(run.run_dir), run.started_time_s, run.num_gpus)


def lost_of_local(io: Io, run_dir: Path) -> tuple[str, ...]:
    """The same for the run of this machine in this directory."""
    return lost_of_run(io, read_run(io, run_dir))


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
    found = saved_of_job(io, job, Path(job.work_dir), paths)
    return lost_lines(found, job.start_time_s, job.num_gpus, io.now())


def _lost(io: Io, run_dir: Path, start_s: float, num_gpus: int | None) -> tuple[str, ...]:
    directory = runs.RunPaths(run_dir).checkpoints_dir
    found = saved_below(for_folder(io, run_dir), directory, 0.0)
    if found.problem is not None:
        found = SavedFound(str(directory))  # the run creates the folder with its first checkpoint
    lost = lost_lines(found, start_s, num_gpus, io.now())
    can_resume = found.newest is not None and runs.RunPaths(run_dir).job_script.exists()
    return (*lost, f"`coach resume {run_dir.name}` goes on from it") if can_resume else lost


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
