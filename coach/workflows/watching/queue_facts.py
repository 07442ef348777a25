"""Keep facts from the queue: jobs seen, paths of their logs, and the ends of own runs.

Slurm forgets a job minutes after its end. Files are written in a separate thread, so that a home directory
that hangs does not stop the queue.
"""

from __future__ import annotations

from functools import partial

from coach import runs
from coach.config import Settings
from coach.model.reading import JobList, Reading
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.run import Run
from coach.monitor.monitor import Monitor
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.runs.seen_jobs import SeenJobs, remember_jobs
from coach.workflows.jobs.lost_submits import adopt
from coach.workflows.judging.targets import output_paths_of
from coach.workflows.sharing import Aside, Sharer
from coach.workflows.watching.world import World

CLOSE_S = 1.0


class QueueFacts:
    """Learns from each answer of the queue. Writes nothing if the world does not allow it."""

    def __init__(self, world: World, settings: Settings, sharer: Sharer | None) -> None:
        self._user = world.user
        self._can_write = world.can_write
        self._seen_jobs = SeenJobs(settings.cache_dir)
        self._aside = Aside()
        self._records = RunRecords(sharer, self._aside)
        self._placed: frozenset[tuple[str, str]] | None = None
        """Own jobs that hold nodes, with the nodes; None before the first reading."""
        self.output_paths = output_paths_of(world.io, settings) if world.can_write else OutputPaths(world.io)

    def learn(self, reading: Reading) -> bool:
        """Remember the jobs of a reading, and the paths of their logs.

        Returns True if own jobs have taken or left nodes since the last reading: the nodes have changed too.
        """
        if not isinstance(reading.payload, JobList):
            return False
        self.output_paths.learn(reading.payload.jobs, is_own_queue=reading.payload.has_outputs)
        if self._can_write:
            jobs, time_s = reading.payload.jobs, reading.time_s
            self._aside.do("seen", partial(remember_jobs, self._seen_jobs, jobs, self._user, time_s))
        before, self._placed = self._placed, _placed_jobs(reading.payload, self._user)
        return before is not None and before != self._placed

    def close(self) -> None:
        """Wait a little for unfinished writes."""
        self._aside.wait(CLOSE_S)

    def keep_runs(self, monitor: Monitor, settings: Settings) -> None:
        """Write into own runs their job ids, and how they ended."""
        if not self._can_write or settings.is_readonly:
            return
        for run, job_id in monitor.found_in_queue():
            self._records.keep_job(run, job_id, settings)
        for run, job in monitor.ended_in_queue():
            self._records.keep_end(run, job)


def _placed_jobs(queue: JobList, user: str) -> frozenset[tuple[str, str]]:
    return frozenset(
        (job.job_id, job.nodes)
        for job in queue.jobs
        if job.user == user and job.nodes and not is_final(job.state)
    )


class RunRecords:
    """Writes each fact into run.json once. If it cannot be written, the next answer of the queue tries
    again."""

    def __init__(self, sharer: Sharer | None, aside: Aside) -> None:
        self._sharer = sharer
        self._aside = aside
        self._ends: set[tuple[str, float | None]] = set()
        self._jobs: set[tuple[str, str]] = set()

    def keep_job(self, run: Run, job_id: str, settings: Settings) -> None:
        """Write the job id of a run whose submission had no answer."""
        if not run.is_launching and (run.run_id, job_id) not in self._jobs:
            self._jobs.add((run.run_id, job_id))
            self._aside.do(f"job of {run.run_id}", partial(self._write_job, run, job_id, settings))

    def keep_end(self, run: Run, job: Job) -> None:
        """Write how the job ended."""
        end = (run.run_id, job.end_time_s)  # a requeued job has several
        if end in self._ends or not run.is_mine:
            return
        self._ends.add(end)
        self._aside.do(f"end of {run.run_id}", partial(self._write_end, run, job))

    def _write_job(self, run: Run, job_id: str, settings: Settings) -> None:
        if not adopt(run, job_id, settings):
            self._jobs.discard((run.run_id, job_id))

    def _write_end(self, run: Run, job: Job) -> None:
        path = runs.RunPaths(run.run_dir).run_json
        try:
            if not is_final(runs.read_json(path).get("state")):
                runs.update_json(path, {"state": job.state, "ended_time_s": job.end_time_s})
                if self._sharer is not None:
                    self._sharer.tell_end(run, job.state)
        except (OSError, runs.RunFileError):
            self._ends.discard((run.run_id, job.end_time_s))
