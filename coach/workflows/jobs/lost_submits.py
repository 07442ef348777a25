"""Find the jobs of launches whose answer was lost, in the queue, and write their ids into run.json.

coach may be killed, or lose its connection, while sbatch waits for the controller; the job may be in the
queue all the same. Every command that names such a run calls this module, so all report the same, and Slurm
is asked once for all runs. A job that begins writes its id itself, so a launch that is not in the queue and
has not begun has changed nothing. Nothing is submitted here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from coach import runs
from coach.analysis.jobs.belonging import (
    RowsByTask,
    has_lost_its_job,
    is_of_another_cluster,
    jobs_in_queue,
)
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.reading import JobList
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.run import Run, Submission
from coach.sources.io import Io
from coach.sources.runs.local_process import LAUNCH_MAY_LAST_S
from coach.sources.runs.run_files import read_run
from coach.sources.slurm.client import own_queue
from coach.workflows.judging.targets import known_cluster

QUEUE_MEMORY_S = 240.0
"""Slurm shows an ended job for at least these seconds, unless the site has lowered MinJobAge from 300 s."""
MAX_AGE_S = 30 * 86400.0
"""Age in seconds of the oldest launch that is looked for, when its recipe is launched again."""
TOLD_FOR_S = 86400.0
"""A launch that never reached Slurm is reported for these seconds, when its recipe is launched again."""
_MAX_LOOKED_AT = 50
_FOUND_BY = "StdOut"
"""The column of squeue that named the run."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of one run's submission: its job, or why there is none."""

    run: Run
    job: Job | None
    submission: Submission | None
    """None if there is a job."""
    doubt: str | None = None
    """Why the state is uncertain."""

    @property
    def words(self) -> str:
        """One clause for a line that begins with the run's name."""
        if self.job is not None:
            return f"it is job {self.job.job_id}, {self.job.state}"
        if self.submission is Submission.LAUNCHING:
            return "its launch is under way: sbatch has not answered yet"
        if self.submission is Submission.NEVER:
            return "its launch was interrupted and never reached Slurm: it was never submitted"
        if self.submission is Submission.UNKNOWN:
            return f"its launch was interrupted and it may be queued: Slurm does not answer: {self.doubt}"
        return "its launch was interrupted: no job of it is in the queue, and none has begun"

    def hint(self, now_s: float) -> str | None:
        """Advice for the user."""
        if self.submission is Submission.UNKNOWN:
            return "check again when Slurm answers, before you launch it again"
        if self.submission is Submission.LAUNCHING:
            return None
        if _age_s(self.run, now_s) < LAUNCH_MAY_LAST_S / 10:
            return "check again in a minute before you launch it again: the job may still reach the queue"
        return f"`coach runs clean {self.run.run_id}` removes it"


def find_jobs(
    lost: Sequence[Run], queue: Iterable[Job] | None, error: str | None, settings: Settings, now_s: float
) -> dict[str, Standing]:
    """Run id → the state of its submission.

    `queue` is the user's own; None if it did not answer, for the reason `error`.
    """
    if queue is None:
        return {run.run_id: _without_queue(run, error) for run in lost}
    found = jobs_in_queue(lost, queue, known_cluster(settings))
    return {
        run.run_id: _adopted(run, found[run.run_id], settings) if run.run_id in found else _absent(run, now_s)
        for run in lost
    }


def ask_for_jobs(lost: Sequence[Run], settings: Settings, io: Io, user: str) -> dict[str, Standing]:
    """Like `find_jobs`, with one question to the queue for all of them."""
    queue, error = _ask_queue(io, user)
    return find_jobs(lost, queue, error, settings, io.now())


def adopt(run: Run, job_id: str, settings: Settings) -> bool:
    """Write the job's id into run.json, unless the launcher is still there to do it.

    Returns False if it could not be written; then the job is looked for again the next time.
    """
    if settings.is_readonly or run.is_launching:
        return True
    paths = runs.RunPaths(run.run_dir)
    try:
        if runs.read_own_record(paths.run_dir).get("job_id") is None:
            runs.update_json(paths.run_json, {"job_id": job_id, "found_by": _FOUND_BY, "launcher": None})
    except (OSError, runs.RunFileError):
        return False
    return True


def lines_for_launch(recipe: str, settings: Settings, io: Io, user: str) -> tuple[str, ...]:
    """Interrupted launches of a recipe, as lines to show before it is launched again.

    Slurm is asked only if there are any.

    Raises UserError if Slurm does not answer: one of them may be queued, and a launch would wait for the same
    controller.
    """
    now_s = io.now()
    waiting = [run for run in _recent(recipe, settings, io, now_s) if _is_waiting(run)]
    if not waiting:
        return ()
    queue, error = _ask_queue(io, user)
    if error is not None:
        unknown = f"a launch of this recipe was interrupted and may be queued: {waiting[0].run_id}"
        raise UserError(f"Slurm does not answer: {error}", unknown)
    lost = [run for run in waiting if has_lost_its_job(run)]
    standing = find_jobs(lost, queue, error, settings, now_s)
    rows = RowsByTask({job.job_id: job for job in queue or ()})
    lines = []
    for run in waiting:
        one = standing.get(run.run_id) or Standing(run, rows.get(run.job_id or ""), None)
        line = _line_for_launch(one, now_s)
        if line is not None:
            lines.append(line)
    return tuple(lines)


def _line_for_launch(one: Standing, now_s: float) -> str | None:
    run_id = one.run.run_id
    if one.run.is_launching:
        return f"a launch of this recipe is under way: {run_id}"
    if one.job is not None:
        if is_final(one.job.state):
            return None
        words = (
            f"a run of this recipe is queued as job {one.job.job_id} ({one.job.state}): its launch was "
            "interrupted"
        )
        return f"{words}; `coach cancel {run_id}` ends it"
    match one.submission:
        case Submission.NEVER if _age_s(one.run, now_s) < TOLD_FOR_S:
            return f"a launch of this recipe was interrupted and never reached Slurm: {run_id}"
        case Submission.NOT_QUEUED if _age_s(one.run, now_s) < TOLD_FOR_S:
            return f"a launch of this recipe was interrupted, is not in the queue and has not begun: {run_id}"
    return None


def _recent(recipe: str, settings: Settings, io: Io, now_s: float) -> list[Run]:
    """The newest runs of a recipe, read one by one: a launch must not wait for thousands of runs to be
    read."""
    found = []
    for name in names_of_recipe(recipe, settings, io, now_s - MAX_AGE_S):
        with contextlib.suppress(OSError, UserError):
            found.append(read_run(io, settings.runs_root / name))
    cluster = known_cluster(settings)
    return [run for run in found if run.recipe == recipe and not is_of_another_cluster(run, cluster)]


def names_of_recipe(recipe: str, settings: Settings, io: Io, since_s: float) -> list[str]:
    """Run directories of a recipe, the newest first."""
    oldest = runs.new_run_id(recipe, since_s)
    try:
        names = io.list_dir(settings.runs_root)
    except OSError:
        return []
    own = [
        name for name in names if runs.RUN_ID.match(name) and name[16:-5] == oldest[16:-5] and name >= oldest
    ]
    return sorted(own, reverse=True)[:_MAX_LOOKED_AT]


def _is_waiting(run: Run) -> bool:
    """True if sbatch's answer was lost, and the job has not written anything yet."""
    has_not_begun = run.backend == "slurm" and run.started_time_s is None and not is_final(run.state)
    return has_not_begun and (run.job_id is None or run.found_by is not None)


def _ask_queue(io: Io, user: str) -> tuple[Sequence[Job] | None, str | None]:
    reading = own_queue(io, user)
    return (reading.payload.jobs if isinstance(reading.payload, JobList) else None), reading.error


def _adopted(run: Run, job: Job, settings: Settings) -> Standing:
    adopt(run, job.job_id, settings)
    return Standing(replace(run, job_id=job.job_id, found_by=_FOUND_BY), job, None)


def _absent(run: Run, now_s: float) -> Standing:
    """The state of a run without a job in the queue."""
    if run.is_launching:
        return Standing(run, None, Submission.LAUNCHING)
    is_remembered = _age_s(run, now_s) < QUEUE_MEMORY_S
    return Standing(run, None, Submission.NEVER if is_remembered else Submission.NOT_QUEUED)


def _without_queue(run: Run, error: str | None) -> Standing:
    if run.is_launching:
        return Standing(run, None, Submission.LAUNCHING)
    return Standing(run, None, Submission.UNKNOWN, error)


def _age_s(run: Run, now_s: float) -> float:
    since_s = run.submitted_time_s or run.created_time_s
    return now_s - since_s if since_s is not None else MAX_AGE_S
