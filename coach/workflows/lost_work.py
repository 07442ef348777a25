"""What would be lost if a running job were ended now: looked up when a person is about to end it, never before.

One directory is looked through, bounded as for its logs; Slurm is asked nothing more than where that is.
"""

from __future__ import annotations

from pathlib import Path

from coach import runs
from coach.analysis.lost_work import lost_lines
from coach.model.saved import SavedFound
from coach.sources.io import Io
from coach.sources.job_files import OutputPaths
from coach.sources.saved_files import newest_saved
from coach.workflows.find_files import MAX_DEPTH, Walk

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


def lost_of_job(io: Io, job_id: str, run_dir: Path | None) -> tuple[str, ...]:
    """What ending this running job loses, in lines; of coach's own from the run's directory, of another from its working directory."""
    job = OutputPaths(io).row(job_id)
    directory = runs.RunPaths(run_dir).checkpoints_dir if run_dir is not None else None
    if directory is None and job is not None and job.work_dir is not None:
        directory = Path(job.work_dir)
    if job is None or directory is None or job.start_time_s is None:
        return ()
    try:
        found = find_saved(io, directory, 0.0 if run_dir is not None else job.start_time_s)
    except OSError as error:
        found = SavedFound(str(directory), problem=error.strerror or str(error))
    if run_dir is not None and found.problem is not None:
        found = SavedFound(str(directory))  # the run makes the folder with its first checkpoint
    return lost_lines(found, job.start_time_s, job.num_gpus, io.now())
