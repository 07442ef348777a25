"""What would be lost if a running job were ended now: looked up when a person is about to end it, never before.

One directory is looked through, bounded as for its logs; Slurm is asked nothing more than where that is.
"""

from __future__ import annotations

from pathlib import Path

from coach import runs
from coach.analysis.jobs.lost_work import lost_lines
from coach.model.slurm.cluster import is_final
from coach.model.training.checkpoint_files import SavedFound
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.runs.checkpoint_files import newest_saved
from coach.workflows.judging.job_files import MAX_DEPTH, Walk

_BEFORE_S = 60.0
"""Clocks of nodes and of file servers differ by so much."""


def find_saved(io: Io, directory: Path, from_s: float) -> SavedFound:
    """The newest checkpoints below a directory that were written after `from_s`."""
    walk = Walk(io, directory, MAX_DEPTH)
    paths = tuple(walk.paths())
    return SavedFound(
        str(directory),
        newest_saved(io, directory, paths, from_s - _BEFORE_S),
        walk.is_whole,
        walk.problem,
    )


def lost_of_run(io: Io, run: Run) -> tuple[str, ...]:
    """What ending this run of coach's own loses, in lines, wherever it runs; none where it has ended or has not begun."""
    if is_final(run.state) or run.started_time_s is None:
        return ()
    return _lost(io, Path(run.run_dir), run.started_time_s, run.num_gpus)


def lost_of_job(io: Io, job_id: str, run_dir: Path | None) -> tuple[str, ...]:
    """What ending this running job loses, in lines; of coach's own from the run's directory, of another from its working directory."""
    job = OutputPaths(io).row(job_id)
    if job is None or job.start_time_s is None:
        return ()
    if run_dir is not None:
        return _lost(io, run_dir, job.start_time_s, job.num_gpus)
    if job.work_dir is None:
        return ()
    found = _found(io, Path(job.work_dir), job.start_time_s)
    return lost_lines(found, job.start_time_s, job.num_gpus, io.now())


def _lost(io: Io, run_dir: Path, start_s: float, num_gpus: int | None) -> tuple[str, ...]:
    directory = runs.RunPaths(run_dir).checkpoints_dir
    found = _found(io, directory, 0.0)
    if found.problem is not None:
        found = SavedFound(str(directory))  # the run makes the folder with its first checkpoint
    return lost_lines(found, start_s, num_gpus, io.now())


def _found(io: Io, directory: Path, from_s: float) -> SavedFound:
    try:
        return find_saved(io, directory, from_s)
    except OSError as error:
        return SavedFound(str(directory), problem=error.strerror or str(error))
