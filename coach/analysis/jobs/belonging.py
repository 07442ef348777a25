"""Which row of the queue is the job of a run, also where nobody wrote the run's job id down.

A number is no identity: job ids begin at 1 again on a cluster that was set up anew, and two clusters that
share a home directory give the same ones. Followed by its number alone, a run of last year would show, and
cancel, somebody's job of today.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from coach import runs
from coach.analysis.queueing.arrays import parse_task_ids
from coach.model.launching.launch import ARRAY_TASK, SweepPoint
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.run import Run, Submission

MAX_CLOCK_SKEW_S = 300.0
"""Between the clock of a login node, by which a run was made, and the controller's, by which its job was
submitted."""

MAX_REQUEUE_AFTER_S = 86400.0
"""A job can be requeued after its end only as long as the controller remembers it: minutes, or a day where a
site is generous."""


def is_job_of(job: Job, run: Run, cluster: str | None = None) -> bool:
    """Whether this row is the run's job, requeued or not. `cluster` is where the row is from, None when it
    has no name."""
    if job.job_id != (run.job_id or run.run_id):
        return False
    return run.backend == "local" or (
        not _is_newer(job, run) and fits(run, job.user, job.submit_time_s, cluster)
    )


def _is_newer(job: Job, run: Run) -> bool:
    """Whether it was submitted after the run's own job, and not because that was requeued."""
    if job.num_requeues != 0 or job.submit_time_s is None or run.submitted_time_s is None:
        return False
    return job.submit_time_s > run.submitted_time_s + MAX_CLOCK_SKEW_S


def fits(run: Run, user: str, submitted_s: float | None, cluster: str | None = None) -> bool:
    """Whether a job with this run's number, of this user and submitted then (None: not known), can be the
    run's."""
    if is_of_another_cluster(run, cluster) or (run.user is not None and user != run.user):
        return False
    made_s = run.created_time_s
    if submitted_s is None:
        return True
    if made_s is not None and submitted_s < made_s - MAX_CLOCK_SKEW_S:
        return False
    ended_s = run.ended_time_s if is_final(run.state) else None
    return ended_s is None or submitted_s <= ended_s + MAX_REQUEUE_AFTER_S


def is_of_another_cluster(run: Run, cluster: str | None) -> bool:
    """Whether both have a name, and not the same."""
    return None not in (run.cluster, cluster) and str(run.cluster).casefold() != str(cluster).casefold()


# A run whose job id nobody wrote down, because the answer of sbatch was lost. A run names the file that its
# job writes to, and Slurm tells that file of each job, with the script that was submitted. A job has nothing
# else of its run's own: any number of runs have its name.


def has_lost_its_job(run: Run) -> bool:
    """True for a run that waits for Slurm and has no job id. A job that starts writes its id down itself."""
    is_waiting = run.started_time_s is None and not is_final(run.state)
    return run.backend == "slurm" and run.job_id is None and is_waiting and run.submission is None


def jobs_in_queue(lost: Iterable[Run], jobs: Iterable[Job], cluster: str | None = None) -> dict[str, Job]:
    """Run id → the job whose StdOut is the run's, or whose command is its script. Of a run that is a task of
    an array the task.

    Of several, as when somebody submitted the script once more, the one that is alive.
    """
    lost = list(lost)
    of_output = {path: run for run in lost for path in _outputs(run)}
    scripts = _Scripts(lost)
    found: dict[str, Job] = {}
    for row in jobs:
        of_row = of_output.get(row.stdout or "")
        pairs = [(of_row, row)] if of_row is not None else scripts.runs_of(row.command or "", row)
        for run, job in pairs:
            if fits(run, job.user, job.submit_time_s, cluster):
                known = found.get(run.run_id)
                if known is None or is_final(known.state):
                    found[run.run_id] = job
    return found


def jobs_by_submit_line(lost: Iterable[Run], told: Iterable[tuple[str, Job]]) -> dict[str, Job]:
    """Run id → the newest job of accounting whose command submitted the run's script."""
    scripts = _Scripts(lost)
    found: dict[str, Job] = {}
    for line, row in told:
        for run, job in scripts.runs_of(line, row):
            if fits(run, job.user, job.submit_time_s):
                found[run.run_id] = job
    return found


class _Scripts:
    """The scripts by which runs are submitted: each its own, or one array's for a whole group."""

    def __init__(self, lost: Iterable[Run]) -> None:
        self._of_script: dict[str, Run] = {}
        self._of_array: dict[str, dict[int, Run]] = {}
        for run in lost:
            self._of_script[str(runs.RunPaths(run.run_dir).job_script)] = run
            if run.sweep is not None:
                first = Path(run.run_dir).parent / run.sweep.group_id
                of_task = self._of_array.setdefault(str(first / runs.ARRAY_SCRIPT), {})
                of_task[_task_of(run.sweep)] = run

    def runs_of(self, command: str, row: Job) -> list[tuple[Run, Job]]:
        """The runs that a command submitted, each with its job: tasks that wait stand in one row."""
        for word in (command, *_words(command)):  # squeue tells it without quotes
            run = self._of_script.get(word)
            if run is not None:
                return [(run, row)]
            if word in self._of_array:
                return list(self._tasks(self._of_array[word], row))
        return []

    @staticmethod
    def _tasks(of_task: Mapping[int, Run], row: Job) -> Iterator[tuple[Run, Job]]:
        ids = parse_task_ids(row.job_id)
        if ids is None:
            return
        # Slurm cuts a long list of waiting tasks short: then it is any of them.
        for task in of_task if ids.is_cut else ids.tasks:
            if task in of_task:
                yield of_task[task], replace(row, job_id=f"{ids.array_id}_{task}")


def _task_of(point: SweepPoint) -> int:
    """The array task of a run: the one of the user's batch file, else its place in the group."""
    is_said = point.parameter == ARRAY_TASK and isinstance(point.value, int)
    return int(point.value) if is_said else point.index


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


def _tasks_of(row: Job) -> Iterator[Job]:
    ids = parse_task_ids(row.job_id)
    if ids is not None:
        yield from (replace(row, job_id=f"{ids.array_id}_{task}") for task in ids.tasks)


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


class RunJobs:
    """The runs and the rows as they were told last."""

    def __init__(self, cluster: str | None) -> None:
        self._cluster = cluster
        self._rows: Mapping[str, Job] = {}
        self._newest_of_job: dict[str, Run] = {}
        self._lost: list[Run] = []
        self._own: tuple[Job, ...] = ()
        self._found: dict[str, str | None] = {}
        """Run id → job id, of runs whose job id nobody wrote down; None: the queue has no job of it."""

    def see_runs(self, runs: Sequence[Run]) -> None:
        """All runs, newest first.

        A job that was told before its run is found too; but what was told then does not say that a run has
        none.
        """
        self._lost = [run for run in runs if has_lost_its_job(run)]
        new = [run for run in self._lost if run.run_id not in self._found]
        found = jobs_in_queue(new, self._own, self._cluster) if new else {}
        self._found.update({run_id: job.job_id for run_id, job in found.items()})
        self._newest_of_job = {run.job_id: run for run in reversed(runs) if run.job_id}

    def see_rows(self, rows: Mapping[str, Job]) -> None:
        """The whole queue by job id. Tasks that wait stand in one row: here each has its own."""
        waiting = {job.job_id: job for row in rows.values() if "[" in row.job_id for job in _tasks_of(row)}
        self._rows = {**waiting, **rows} if waiting else rows

    def see_outputs(self, jobs: Iterable[Job]) -> bool:
        """Own jobs with the files that they write to. Returns True if another run has found its job, or is
        known to have none."""
        self._own = tuple(jobs)
        found = jobs_in_queue(self._lost, self._own, self._cluster) if self._lost else {}
        before = self._found
        self._found = {
            run.run_id: found[run.run_id].job_id if run.run_id in found else None for run in self._lost
        }
        return self._found != before

    def found(self) -> list[tuple[Run, str]]:
        """Runs whose run.json does not name the job yet, with their jobs."""
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


def run_as_job(run: Run) -> Job:
    """A run as a row of the queue, as its own file tells, where Slurm has forgotten the job or there was
    none. Its number is then the run's id."""
    limit = run.resources.get("time_limit_s")
    limit_s = int(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) else None
    used_s = None
    if run.started_time_s is not None and run.ended_time_s is not None:
        used_s = max(0, round(run.ended_time_s - run.started_time_s))
    num_nodes = run.resources.get("num_nodes")
    partition = run.resources.get("partition")
    return Job(
        job_id=run.job_id or run.run_id,
        name=run.recipe,
        user=run.user or "",
        state=run.state or "",
        reason=None,
        partition=partition if isinstance(partition, str) else "",
        nodes=None,
        num_nodes=num_nodes if isinstance(num_nodes, int) else None,
        num_cpus=None,
        num_gpus=run.num_gpus,
        time_used_s=used_s,
        time_left_s=None,
        time_limit_s=limit_s,
        submit_time_s=run.created_time_s,
        start_time_s=run.started_time_s,
        end_time_s=run.ended_time_s,
        work_dir=run.run_dir,
        host=run.host,
        cluster=run.cluster,
    )
