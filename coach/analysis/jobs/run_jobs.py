"""Which row of the queue is a run's job, while both change.

A number is no identity: it begins again when a cluster is set up anew, and several runs may have had it. A
run whose submission had no answer has no number, and is known by its output. It stands apart from the monitor
because it needs nothing else of the picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from coach.analysis.jobs.belonging import is_job_of
from coach.analysis.jobs.unanswered_submits import has_lost_its_job, jobs_by_output, with_job
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.run import Run


class RunJobs:
    """The runs and the rows as they were told last."""

    def __init__(self, cluster: str | None) -> None:
        self._cluster = cluster
        self._rows: Mapping[str, Job] = {}
        self._newest_of_job: dict[str, Run] = {}
        self._lost: list[Run] = []
        self._found: dict[str, str | None] = {}
        """Run id → job id, of runs whose job id nobody wrote down; None: the queue has no job of it."""

    def see_runs(self, runs: Sequence[Run]) -> None:
        """All runs, newest first."""
        self._lost = [run for run in runs if has_lost_its_job(run)]
        self._newest_of_job = {run.job_id: run for run in reversed(runs) if run.job_id}

    def see_rows(self, rows: Mapping[str, Job]) -> None:
        """The whole queue by job id."""
        self._rows = rows

    def see_outputs(self, jobs: Iterable[Job]) -> None:
        """Own jobs with the files that they write to."""
        found = jobs_by_output(self._lost, jobs, self._cluster) if self._lost else {}
        self._found = {
            run.run_id: found[run.run_id].job_id if run.run_id in found else None for run in self._lost
        }

    def found(self) -> list[tuple[Run, str]]:
        """Runs of which run.json does not tell the job yet, and their jobs."""
        found = ((run, self._found.get(run.run_id)) for run in self._lost)
        return [(run, job_id) for run, job_id in found if job_id is not None]

    def row_of(self, run: Run) -> Job | None:
        """The run's row in the queue; of several runs with its number it belongs to the newest that it can
        belong to."""
        run = self._joined(run)
        row = self._rows.get(run.job_id or run.run_id)
        if row is None or not is_job_of(row, run, self._cluster):
            return None
        newest = self._newest_of_job.get(row.job_id)
        is_overtaken = newest is not None and newest.run_id > run.run_id
        return None if newest and is_overtaken and is_job_of(row, newest, self._cluster) else row

    def with_state(self, run: Run) -> Run:
        """The run in the state that the queue tells, unless it has ended and was not requeued."""
        run = self._joined(run)
        job = self.row_of(run)
        if job is None or (is_final(run.state) and not job.was_requeued_after(run.ended_time_s)):
            return run
        return replace(run, state=job.state, ended_time_s=job.end_time_s if is_final(job.state) else None)

    def _joined(self, run: Run) -> Run:
        return with_job(run, self._found.get(run.run_id), run.run_id in self._found)
