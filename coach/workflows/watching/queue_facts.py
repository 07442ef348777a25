"""What a session writes into run.json because the queue told it, and Slurm will have forgotten it within
minutes."""

from __future__ import annotations

import contextlib

from coach import runs
from coach.config import Settings
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.run import Run
from coach.workflows.jobs.lost_submits import adopt
from coach.workflows.sharing import Sharer


class RunRecords:
    """Writes each thing once."""

    def __init__(self, sharer: Sharer | None) -> None:
        self._sharer = sharer
        self._ends: set[tuple[str, float | None]] = set()
        self._jobs: set[tuple[str, str]] = set()

    def keep_job(self, run: Run, job_id: str, settings: Settings) -> None:
        """The job of a run whose submission had no answer."""
        if not run.is_launching and (run.run_id, job_id) not in self._jobs:
            self._jobs.add((run.run_id, job_id))
            adopt(run, job_id, "StdOut", settings)

    def keep_end(self, run: Run, job: Job) -> None:
        """How the job ended."""
        end = (run.run_id, job.end_time_s)  # a requeued job has several
        if end in self._ends:
            return
        self._ends.add(end)
        path = runs.RunPaths(run.run_dir).run_json
        with contextlib.suppress(OSError, runs.RunFileError):
            if not is_final(runs.read_json(path).get("state")):
                runs.update_json(path, {"state": job.state, "ended_time_s": job.end_time_s})
                if self._sharer is not None:
                    self._sharer.tell_end(run, job.state)
