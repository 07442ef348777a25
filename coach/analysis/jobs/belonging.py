"""Find the row of the queue that is a run's job, even if the run's job id was never recorded.

A job id alone does not identify a job: ids restart at 1 on a cluster that was set up anew, and two clusters
that share a home directory use the same ids. If coach followed ids alone, a run of last year would show, and
could cancel, somebody else's job of today.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coach import runs
from coach.analysis.queueing.arrays import (
    TaskIds,
    each_task_once,
    group_id,
    is_part,
    num_tasks,
    parse_task_ids,
)
from coach.analysis.queueing.arrays import is_job_id as is_job_id
from coach.analysis.queueing.arrays import without_rests as without_rests
from coach.model.launching.launch import ARRAY_TASK, SweepPoint
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.run import Run, Submission

MAX_CLOCK_SKEW_S = 300.0
"""Seconds by which the clock of a login node, which dates a run, may differ from the controller's, which
dates its job."""

MAX_REQUEUE_AFTER_S = 86400.0
"""A job can be requeued after its end as long as the controller remembers it: minutes, or a day at some
sites."""


def is_job_of(job: Job, run: Run, cluster: str | None = None) -> bool:
    """True if this row is the run's job, requeued or not, or that of an earlier attempt. `cluster` is the
    row's cluster, None if it has no name."""
    if job.job_id not in (run.job_ids or (run.run_id,)):
        return False
    if (
        job.job_id == run.job_id
        and None not in (job.raw_job_id, run.raw_job_id)
        and job.raw_job_id != run.raw_job_id
    ):
        return False  # a job that was submitted inside this task, and inherited its variables
    return run.backend == "local" or (
        not _is_newer(job, run) and fits(run, job.user, job.submit_time_s, cluster)
    )


def _is_newer(job: Job, run: Run) -> bool:
    """True if it was submitted after the run's own job, and is not that job requeued."""
    if job.num_requeues != 0 or job.submit_time_s is None or run.submitted_time_s is None:
        return False
    return job.submit_time_s > run.submitted_time_s + MAX_CLOCK_SKEW_S


def fits(run: Run, user: str, submitted_s: float | None, cluster: str | None = None) -> bool:
    """True if a job with this run's number can be the run's. `user` and `submitted_s` are the job's (None:
    not known)."""
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
    """True if both clusters have a name and the names differ."""
    return None not in (run.cluster, cluster) and str(run.cluster).casefold() != str(cluster).casefold()


# A run without a job id, because the answer of sbatch was lost. The run names its job's output file and
# script, and Slurm reports both for each job. Nothing else of a job identifies the run: many runs have the
# same name.


def has_lost_its_job(run: Run) -> bool:
    """True if a run waits for Slurm and has no job id. A job that starts writes its id itself."""
    is_waiting = run.started_time_s is None and not is_final(run.state)
    return run.backend == "slurm" and run.job_id is None and is_waiting


def jobs_in_queue(lost: Iterable[Run], jobs: Iterable[Job], cluster: str | None = None) -> dict[str, Job]:
    """Run id → the job whose StdOut is the run's, or whose command is its script. For a run that is an array
    task, the job is that task.

    If there are several, because somebody submitted the script again, the one that is alive.
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


class _Scripts:
    """The submitted scripts of runs: one for each run, or one for a whole group that is an array."""

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
        """The runs that a command submitted, each with its job: waiting tasks share one row."""
        run = self._of_script.get(command)
        return [(run, row)] if run is not None else list(self._tasks(self._of_array.get(command, {}), row))

    @staticmethod
    def _tasks(of_task: Mapping[int, Run], row: Job) -> Iterator[tuple[Run, Job]]:
        ids = parse_task_ids(row.job_id)
        if ids is None:
            return
        # Slurm may cut a long list of waiting tasks: the run may then be any of them.
        for task in of_task if ids.is_cut else ids.tasks:
            if task in of_task:
                yield of_task[task], replace(row, job_id=f"{ids.array_id}_{task}")


def _task_of(point: SweepPoint) -> int:
    """The array task of a run: as numbered in the user's batch file, else its index in the group."""
    is_said = point.parameter == ARRAY_TASK and isinstance(point.value, int)
    return int(point.value) if is_said else point.index


def with_job(run: Run, job_id: str | None, is_queue_known: bool) -> Run:
    """The run with the job that was found, or marked as having none in the queue.

    The screens show this.
    """
    if not has_lost_its_job(run):
        return run
    if job_id is not None:
        return replace(run, job_id=job_id)
    if run.is_launching:
        return replace(run, submission=Submission.LAUNCHING)
    return replace(run, state=None, submission=Submission.NOT_QUEUED) if is_queue_known else run


def _outputs(run: Run) -> tuple[str, ...]:
    """The run's StdOut as Slurm may report it: some versions leave a doubled %."""
    run_dir = Path(run.run_dir)
    output = str(runs.scheduler_logs(run_dir.parent, run_dir.name)[0])
    return output, output.replace("%", "%%")


@dataclass(frozen=True, slots=True)
class Parts:
    """The tasks of an array, or the components of a heterogeneous job."""

    rows: tuple[Job, ...]
    number: int
    """With those whose start and end were not seen."""
    with_unknown_end: frozenset[str]
    """Job ids of the rows that have left the queue since they were last seen."""


def parts_of(rows: Iterable[Job], has_left: Callable[[str], bool]) -> Parts:
    """The parts of one job. `rows` are those of the queue, then those of coach's record, newest first.
    `has_left` is true for a job of the record that the queue no longer has.

    The record has each shared row of waiting tasks that was seen. If the queue no longer has it, its tasks
    have started since.
    """
    rows = [row for row in rows if "+[" not in row.job_id]
    left = frozenset(row.job_id for row in rows if has_left(row.job_id))
    started = [row for row in rows if row.job_id not in left or row.state != "PENDING"]
    number = sum(num_tasks(row) for row in each_task_once(rows))
    return Parts(each_task_once(started or rows), number, left)


def has_parts(job_id: str, rows: Iterable[Job]) -> bool:
    """True if a row is a task, or a component, of the job with this number."""
    return any(is_part(row.job_id) and group_id(row.job_id) == job_id for row in rows)


def runs_that_fit(runs: Sequence[Run], rows: Sequence[Job], cluster: str | None) -> Sequence[Run]:
    """The runs of an array; none if one of its rows cannot be theirs: a later array has its number."""
    is_theirs = all(fits(run, row.user, row.submit_time_s, cluster) for run in runs for row in rows)
    return runs if is_theirs else ()


def parts_with_runs(
    rows: Sequence[Job], runs: Iterable[Run], rest: Job | None, has_left: Callable[[str], bool]
) -> Parts:
    """The parts of one job, as `parts_of`. Tasks that Slurm has forgotten are known from their runs.

    `rest` is the row that stands for all tasks that were cancelled while they waited.
    """
    in_queue = RowsByTask({row.job_id: row for row in rows if not has_left(row.job_id)})
    end = rest.state if rest is not None and is_final(rest.state) else ""
    of_runs = {
        row.job_id: replace(row, cluster=None, state=row.state if is_final(row.state) else end)
        for row in map(run_as_job, runs)
        if in_queue.get(row.job_id) is None
    }
    others = [row for row in rows if row.job_id not in of_runs]

    def is_end_unknown(job_id: str) -> bool:
        row = of_runs.get(job_id)
        return has_left(job_id) if row is None else not is_final(row.state)

    return parts_of([*of_runs.values(), *others], is_end_unknown)


class RowsByTask:
    """The rows of a queue by job id, also those of array tasks that share a row (`17_[3-8%2]`)."""

    def __init__(self, rows: Mapping[str, Job]) -> None:
        self._rows = rows
        self._shared: dict[str, list[tuple[Job, TaskIds]]] = {}
        """Array id → the rows of its waiting tasks."""
        for row in rows.values():
            ids = parse_task_ids(row.job_id) if "[" in row.job_id else None
            if ids is not None:
                self._shared.setdefault(ids.array_id, []).append((row, ids))

    def get(self, job_id: str) -> Job | None:
        """The row of a job or of one array task. If Slurm cut the list of an array's tasks, that row counts
        for every task without another one."""
        row = self._rows.get(job_id)
        wanted = parse_task_ids(job_id) if row is None else None
        if wanted is None:
            return row
        shared = self._shared.get(wanted.array_id, ())
        holding = [row for row, ids in shared if all(task in ids.tasks for task in wanted.tasks)]
        holding += sorted((row for row, ids in shared if ids.is_cut), key=lambda row: is_final(row.state))
        return replace(holding[0], job_id=job_id) if holding else None


class RunJobs:
    """The newest known runs and rows of the queue."""

    def __init__(self, cluster: str | None) -> None:
        self._cluster = cluster
        self._rows = RowsByTask({})
        self._newest_of_job: dict[str, Run] = {}
        self._lost: list[Run] = []
        self._own: tuple[Job, ...] = ()
        self._found: dict[str, str | None] = {}
        """Run id → job id, for runs whose job id was never recorded; None: the queue has no job of the
        run."""

    def see_runs(self, runs: Sequence[Run]) -> None:
        """Take in all runs, newest first.

        A new run may match a job seen before. If it matches none, that does not prove that it has no job.
        """
        self._lost = [run for run in runs if has_lost_its_job(run)]
        new = [run for run in self._lost if run.run_id not in self._found]
        found = jobs_in_queue(new, self._own, self._cluster) if new else {}
        self._found.update({run_id: job.job_id for run_id, job in found.items()})
        self._newest_of_job = {run.job_id: run for run in reversed(runs) if run.job_id}

    def see_rows(self, rows: Mapping[str, Job]) -> None:
        """Take in the whole queue by job id."""
        self._rows = RowsByTask(rows)

    def see_outputs(self, jobs: Iterable[Job]) -> bool:
        """Take in own jobs with their output files. Returns True if one more run has a job, or is known to
        have none."""
        self._own = tuple(jobs)
        found = jobs_in_queue(self._lost, self._own, self._cluster) if self._lost else {}
        before = self._found
        self._found = {
            run.run_id: found[run.run_id].job_id if run.run_id in found else None for run in self._lost
        }
        return self._found != before

    def found(self) -> list[tuple[Run, str]]:
        """Runs whose run.json has no job id yet, with their jobs."""
        found = ((run, self._found.get(run.run_id)) for run in self._lost)
        return [(run, job_id) for run, job_id in found if job_id is not None]

    def row(self, job_id: str) -> Job | None:
        """The row of a job, or of an array task that waits in a row with others."""
        return self._rows.get(job_id)

    def row_of(self, run: Run) -> Job | None:
        """The run's row in the queue. If several runs have its job id, the row belongs to the newest run that
        fits."""
        run = self._joined(run)
        row = self._rows.get(run.job_id or run.run_id)
        if row is None or not is_job_of(row, run, self._cluster):
            return None
        newest = self._newest_of_job.get(row.job_id)
        is_overtaken = newest is not None and newest.run_id > run.run_id
        return None if newest and is_overtaken and is_job_of(row, newest, self._cluster) else row

    def with_state(self, run: Run) -> Run:
        """The run in the state that the queue reports, unless it has ended and was not requeued."""
        run = self._joined(run)
        job = self.row_of(run)
        if job is None or (is_final(run.state) and not job.was_requeued_after(run.ended_time_s)):
            return run
        return replace(run, state=job.state, ended_time_s=job.end_time_s if is_final(job.state) else None)

    def _joined(self, run: Run) -> Run:
        return with_job(run, self._found.get(run.run_id), run.run_id in self._found)


def run_as_job(run: Run) -> Job:
    """The run as a row of the queue, from its own file, for a job that Slurm has forgotten or a local run.
    Without a job id, its number is the run's id."""
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
