"""Which job of the queue is of a run whose job id nobody wrote down, because sbatch's answer was lost.

A run names the file that its job writes to, and Slurm tells that file of each job. Nothing else of a job is a
run's own: its name is the recipe's, and any number of runs have that.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from coach import runs
from coach.analysis.jobs.belonging import fits
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.run import Run, Submission


def has_lost_its_job(run: Run) -> bool:
    """True for a run that waits for Slurm and has no job id. A job that starts writes its id down itself."""
    is_waiting = run.started_time_s is None and not is_final(run.state)
    return run.backend == "slurm" and run.job_id is None and is_waiting and run.submission is None


def jobs_by_output(lost: Iterable[Run], jobs: Iterable[Job], cluster: str | None = None) -> dict[str, Job]:
    """Run id → the job whose StdOut is the run's.

    Of several, as when somebody submitted the script once more, the one that is alive.
    """
    of_output = {path: run for run in lost for path in _outputs(run)}
    found: dict[str, Job] = {}
    for job in jobs:
        run = of_output.get(job.stdout or "")
        if run is None or not fits(run, job.user, job.submit_time_s, cluster):
            continue
        known = found.get(run.run_id)
        if known is None or is_final(known.state):
            found[run.run_id] = job
    return found


def jobs_by_submit_line(lost: Iterable[Run], told: Iterable[tuple[str, Job]]) -> dict[str, Job]:
    """Run id → the newest job of accounting whose command submitted the run's script."""
    scripts = {str(runs.RunPaths(run.run_dir).job_script): run for run in lost}
    found: dict[str, Job] = {}
    for line, job in told:
        run = next((scripts[word] for word in _words(line) if word in scripts), None)
        if run is not None and fits(run, job.user, job.submit_time_s):
            found[run.run_id] = job
    return found


def with_job(run: Run, job_id: str | None, is_queue_known: bool) -> Run:
    """A run with the job that was found, or with the knowledge that the queue has none.

    The screens show it so.
    """
    if not has_lost_its_job(run):
        return run if run.submission is None else replace(run, state=None)
    if job_id is not None:
        return replace(run, job_id=job_id)
    if run.is_launching:
        return replace(run, submission=Submission.LAUNCHING)
    return replace(run, state=None, submission=Submission.NOT_QUEUED) if is_queue_known else run


def _outputs(run: Run) -> tuple[str, ...]:
    """The run's StdOut as Slurm may tell it: some versions leave a doubled %."""
    run_dir = Path(run.run_dir)
    output = str(runs.scheduler_logs(run_dir.parent, run_dir.name)[0])
    return output, output.replace("%", "%%")


def _words(line: str) -> list[str]:
    """A command's words; those between blanks where its quotes do not close."""
    try:
        return [*shlex.split(line), *line.split()]
    except ValueError:
        return line.split()
