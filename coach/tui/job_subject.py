"""One job as the screens show it: its run, its row in the queue, and its followed data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from coach.analysis.jobs.progress import Progress, progress_told, recent_rate
from coach.analysis.queueing.arrays import FoldedJob, fold, group_id, is_part
from coach.analysis.queueing.free_gpus import GpuSlot
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Finding
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.cluster import Job, is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.tui.context import Context
from coach.tui.job_place import NOWHERE, JobPlace, job_place
from coach.tui.question import Answers, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubject:
    """All data about one job. Times are in Unix seconds."""

    now_s: float
    user: str | None
    target: str
    """The followed target: the run's id, else the job id."""
    run: Run | None
    folded: FoldedJob | None
    """Its row in the queue, or all rows of its array; None for a run without a job in the queue."""
    state: str | None
    """The run's state from the best source; for a job without a run, the state of its target."""
    past: PastJob | None
    """Its row in accounting, for a job that has left the queue."""
    followed: TargetSnapshot | None
    diagnosis: Diagnosis | None
    history: History
    stream_error: str | None
    """Why the stream of the measuring step inside the job has ended."""
    answers: Answers
    label: Callable[[str], str]
    """Returns the label of the key with this id."""
    is_read: bool = False
    """True if coach reads its files, so that it gets a verdict."""
    can_fix: bool = False
    questions: Sequence[Question] = ()
    """Questions that its screen asks Slurm."""
    task_findings: Mapping[str, Finding] = field(default_factory=dict)
    """For an array, the most severe finding of each judged task, by the task's id."""
    slots: Sequence[GpuSlot] = ()
    """Its GPUs, if its nodes agree on them."""
    place: JobPlace = NOWHERE
    """Its position in the queue, and its nodes."""
    is_log: bool = False
    """True if its loss is drawn on a logarithmic scale."""
    first_chart: int = 0
    """Index of the chart that is drawn first and largest."""

    @property
    def is_known(self) -> bool:
        followed = self.followed
        is_read = followed is not None and (followed.job is not None or bool(followed.log_tails))
        return self.folded is not None or self.run is not None or is_read

    @property
    def job(self) -> Job | None:
        return self.folded.job if self.folded is not None else None

    @property
    def is_live(self) -> bool:
        state = self.state if self.run is not None or self.job is None else self.job.state
        return not is_final(state or "RUNNING")

    @property
    def rate(self) -> float | None:
        """Recent throughput of all ranks together, in samples/s."""
        return recent_rate(self.history.curve)

    @property
    def progress(self) -> Progress | None:
        """Its progress from its metrics, else from a progress bar in its log."""
        parameters = self.run.parameters if self.run is not None else {}
        events = self.followed.events if self.followed is not None else ()
        tails = self.followed.log_tails if self.followed is not None else ()
        row = self.followed.job if self.followed is not None else None
        used_s = row.time_used_s if row is not None else None
        return progress_told(self.history.curve, parameters, events, tails, used_s)


def run_named(context: Context, name: str) -> Run | None:
    """The run with this id, or the run of the job with this id."""
    return context.run(name) or context.run_of_job(name)


def rows_named(context: Context, name: str, past: PastJob | None) -> FoldedJob | None:
    """The job's row in the queue, or all rows of an array. If the job has left the queue, the row that was
    last followed, else the rows of the ended jobs that coach knows. None if there is none of these."""
    if past is not None:
        return fold([past.job])[0]
    run = run_named(context, name)
    if run is not None and name == run.run_id:
        job = context.job_of_run(run)
        return fold([job])[0] if job is not None else None
    rows = _rows_in_queue(context.snapshot.jobs, name)
    followed = context.snapshot.targets.get(run.run_id if run is not None else name)
    if not rows and followed is not None and followed.job is not None:
        rows = [followed.job]
    rows = rows or _rows_in_queue([each.job for each in context.answers.past_jobs], name)
    return fold(rows)[0] if rows else None


def _rows_in_queue(jobs: Sequence[Job], name: str) -> list[Job]:
    """The row of a job, or the rows of an array's tasks. The tasks that were cancelled while they waited have
    the number of the array as their job id."""
    rows = [job for job in jobs if job.job_id == name]
    return [*rows, *(job for job in jobs if is_part(job.job_id) and group_id(job.job_id) == name)]


def job_subject(context: Context, name: str, folded: FoldedJob | None, past: PastJob | None) -> JobSubject:
    """Collect the data about one job. `name` is a run's id or a job id, `folded` its row."""
    run = run_named(context, name)
    target = run.run_id if run is not None else name
    followed = context.snapshot.targets.get(target)
    stream = context.snapshot.sources.get(f"stream:{target}")
    state = followed.state if followed is not None else None
    history, job = context.session.history(target), folded.job if folded is not None else None
    return JobSubject(
        now_s=context.now_s,
        user=context.user,
        target=target,
        run=run,
        folded=folded,
        state=context.state_of(run) if run is not None else state,
        past=past,
        followed=followed,
        diagnosis=context.diagnoses.get(target),
        history=history,
        stream_error=stream.error if stream is not None else None,
        answers=context.answers,
        label=context.label,
        place=NOWHERE
        if job is None
        else job_place(context, job, is_measured=bool(history.nodes or history.curve)),
        task_findings=_task_findings(context, folded),
    )


def _task_findings(context: Context, folded: FoldedJob | None) -> dict[str, Finding]:
    parts = folded.parts if folded is not None and folded.is_folded else ()
    target_of, runs = context.trainings.target_of, context.snapshot.runs
    found = {part.job_id: context.found.get(target_of(part, runs)) for part in parts}
    return {task: ranked[0].finding for task, ranked in found.items() if ranked}
