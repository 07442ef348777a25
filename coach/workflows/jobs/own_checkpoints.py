"""Find the checkpoints of a running job among the files of its directory.

A checkpoint that another job of the same directory may have written is told apart: a person who ends the job
would rely on it. Slurm is asked once for the user's own jobs, because coach's record may be old.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coach.model.reading import JobList
from coach.model.slurm.cluster import Job
from coach.model.training.checkpoint_files import SavedFound
from coach.model.training.run import Checkpoint
from coach.sources.io import Io, for_folder, for_user
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.machine.user import user_name
from coach.sources.runs.checkpoint_files import newest_saved, without_steps
from coach.sources.runs.run_files import read_checkpoints
from coach.sources.slurm.client import own_queue
from coach.workflows.judging.directory_files import Walk
from coach.workflows.judging.job_files import belonging_of

_OF_A_RUN = "run.json"
_WritersOf = Callable[[str, float], tuple[str, ...]]
"""Returns the other jobs that may have written a path at a time."""


def _nobody(path: str, time_s: float) -> tuple[str, ...]:
    return ()


def find_saved(io: Io, directory: Path, from_s: float, writers_of: _WritersOf = _nobody) -> SavedFound:
    """The newest checkpoints below a directory that were written at or after `from_s`.

    Run directories of coach below it are left out: a run's checkpoints are searched in its own directory.
    """
    walk = Walk(io, directory)
    found = tuple(walk.paths())
    of_runs = tuple(path.removesuffix(_OF_A_RUN) for path in found if path.endswith(f"/{_OF_A_RUN}"))
    paths = tuple(path for path in found if not path.startswith(of_runs))
    return SavedFound(
        str(directory),
        newest_saved(io, directory, paths, from_s, writers_of),
        walk.is_whole,
        walk.problem,
    )


def saved_of_job(io: Io, job: Job, directory: Path, paths: OutputPaths) -> SavedFound:
    """The checkpoints of a job that coach did not launch, by the rules for its metrics: other jobs of the
    directory may have written them, unless the path has the job's number."""
    io = for_user(io, lambda: job.user)
    queue = own_queue(io, user_name()).payload
    if isinstance(queue, JobList):
        paths.learn(queue.jobs)
    belonging = belonging_of(io, job, paths)

    def writers_of(path: str, time_s: float) -> tuple[str, ...]:
        is_own = belonging.has_number_in(without_steps(path))
        return () if is_own else belonging.writers_of(directory / path, time_s)

    return saved_below(io, directory, belonging.from_s, writers_of)


def saved_below(io: Io, directory: Path, from_s: float, writers_of: _WritersOf = _nobody) -> SavedFound:
    """The same; a directory that cannot be read is a problem of the answer."""
    try:
        return find_saved(io, directory, from_s, writers_of)
    except OSError as error:
        return SavedFound(str(directory), problem=error.strerror or str(error))


def newest_of_run(io: Io, run_dir: Path) -> tuple[Checkpoint | None, dict[str, str]]:
    """The newest whole checkpoint of a run, None if it has none; and path → reason for newer ones that are
    incomplete. Raises OSError."""
    io, torn = for_folder(io, run_dir), dict[str, str]()
    for each in reversed(read_checkpoints(io, run_dir)):
        found = saved_below(io, Path(each.path).parent, 0.0).torn
        parts = (part for part in found if f"{part.path}/".startswith(f"{each.path}/"))
        why = next((part.torn for part in parts if part.torn), None)
        if why is None:
            return each, torn
        torn[each.path] = why
    return None, torn
