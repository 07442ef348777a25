"""One job: what ended it, the proof and the fix, and the end of its log with the line of the cause marked.

Of a waiting job it tells why it waits, and what its place in the queue is made of; of a running one its GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.analysis.judging.no_finding import why_no_fix
from coach.analysis.queueing.arrays import FoldedJob, fold, group_id, is_part, unfold
from coach.analysis.queueing.free_gpus import GpuSlot, allocation_map
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.cluster import GpuAllocation, Job, is_final
from coach.sources.slurm.node_sets import expand_nodes
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.job_choice import Chosen, JobChoice, JobKeys, choose_job
from coach.tui.messages import FixRequested, ScreenOpened, ScreenShown, Wanted
from coach.tui.mode import Mode
from coach.tui.question import Question
from coach.tui.render.asked import asked_line
from coach.tui.render.finding import cause_place, findings_lines, look_line, outcome_lines
from coach.tui.render.history import efficiency_lines
from coach.tui.render.job import facts_line, held_gpu_lines, job_head, job_lines
from coach.tui.render.pending import place_lines, task_lines, why_lines
from coach.tui.render.queue import is_own
from coach.tui.render.telemetry import step_use_lines, telemetry_lines
from coach.tui.render.text import BLANK, Line, line, muted
from coach.tui.widgets.cause_and_log import CauseAndLog


class JobScreen(JobKeys, CoachScreen, screen="job"):
    """Facts first, then what is asked once: for a waiting job its place, for a running one its GPUs."""

    def __init__(self, context: Context, job_id: str, past: PastJob | None = None) -> None:
        """`past` is a job that has ended, which the queue no longer knows."""
        super().__init__(context, ("cluster", f"job {job_id}"))
        self.job_choice = JobChoice(self, self._chosen)
        self._job_id = job_id
        self._past = past
        self._found: tuple[tuple[Job, ...], FoldedJob | None] = ((), None)
        """The queue in which the job was looked up, and the job."""
        self._has_asked = False
        self._are_facts_shown = False

    def compose_body(self) -> Iterator[Widget]:
        yield CauseAndLog(id="job")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    def _ask(self, folded: FoldedJob) -> None:
        """What is worth asking changes with the job's state; of what it was not in before, an older answer
        knows nothing."""
        wanted = self._questions_about(folded)
        for question in wanted:
            if question not in self.questions:
                self.post_message(Wanted(question, is_anew=self._has_asked))
        self.questions, self._has_asked = wanted, True

    def _questions_about(self, folded: FoldedJob) -> tuple[Question, ...]:
        if all(job.raw_job_id is None for job in folded.parts):
            return ()
        is_mine = is_own(folded.job, self.context.user)
        reasons = {
            Question.PLACE_IN_QUEUE: is_mine and any(job.state == "PENDING" for job in folded.parts),
            Question.ALLOCATIONS: any(
                job.num_gpus and job.nodes and not is_final(job.state) for job in folded.parts
            ),
            Question.STEP_USE: is_mine and folded.job.state == "RUNNING",
        }
        return tuple(question for question, is_wanted in reasons.items() if is_wanted)

    @property
    def subjects(self) -> tuple[str, ...]:
        run = self.context.run_of_job(self._job_id)
        return (run.run_id if run is not None else self._job_id,)

    def _folded(self) -> FoldedJob | None:
        """The job by its number, or all of an array by the array's."""
        if self._past is not None:
            return fold([self._past.job])[0]
        jobs = self.context.snapshot.jobs
        if self._found[0] is not jobs:
            found = [job for job in jobs if job.job_id == self._job_id] or [
                job for job in jobs if is_part(job.job_id) and group_id(job.job_id) == self._job_id
            ]
            self._found = (jobs, fold(found)[0] if found else None)
        return self._found[1]

    def _chosen(self) -> list[Chosen]:
        folded = self._folded()
        if folded is None:
            return []
        return [choose_job(self.context, folded.job, self._job_id, is_array=len(folded.parts) > 1)]

    def action_gpus(self) -> None:
        run, chosen = self.context.run_of_job(self._job_id), self._chosen()
        if not chosen:
            self.note("this job is no longer in the queue")
        elif chosen[0].why_not_mine is not None:
            self.note(chosen[0].why_not_mine)
        elif chosen[0].is_array:
            self.note("each task of an array has GPUs of its own: u in the queue shows the tasks")
        else:
            self.post_message(
                ScreenOpened("gpus", run.run_id if run is not None else self._job_id, self.crumbs[-1])
            )

    def action_fix(self) -> None:
        if self.is_off("fix"):
            return
        diagnosis = self.context.diagnoses.get(self._target)
        if any(finding.fixes for finding in (diagnosis.findings if diagnosis else ())):
            self.post_message(FixRequested(self._target))
        elif diagnosis is None and self.targets:
            self.note("not looked at yet: its files are being read")
        else:
            self.note(why_no_fix(diagnosis))

    def show(self) -> None:
        folded = self._folded()
        if folded is not None:
            self._ask(folded)
            self._follow(folded)
            self._draw(folded)
        elif self.pane("#body").lines:
            self.note("no longer in the queue: this is the last that was seen")
        else:
            self.pane("#body").set_lines([line(muted(" this job is no longer in the queue; H finds it"))])

    def _draw(self, folded: FoldedJob) -> None:
        target = self.context.snapshot.targets.get(self._target)
        tails = target.log_tails if target is not None and not self._are_facts_shown else ()
        place = cause_place(self.context.diagnoses.get(self._target))
        self.query_one(CauseAndLog).show(lambda width: self._lines(folded, width), tails, place)

    def action_log(self, name: str) -> None:
        """`stdout.log` or `stderr.log`, as on a run's screen."""
        why_not = self.query_one(CauseAndLog).choose(name.partition(".")[0])
        if why_not is not None:
            self.note(why_not)
        self.refresh_all()

    def action_view(self) -> None:
        self._are_facts_shown = not self._are_facts_shown
        self.refresh_all()

    def _follow(self, folded: FoldedJob) -> None:
        """Have the job read and judged while it is looked at: an array has a verdict for each task alone."""
        job, run = folded.job, self.context.run_of_job(folded.job.job_id)
        has_files = run is not None or self.context.mode not in (Mode.REPLAY, Mode.DEMO)
        is_read = has_files and folded.num_tasks == 1 and is_own(job, self.context.user)
        wanted = (self._target,) if is_read and job.state not in ("PENDING", "CONFIGURING") else ()
        if wanted != self.targets:
            self.targets = wanted
            self.post_message(ScreenShown())

    @property
    def _target(self) -> str:
        run = self.context.run_of_job(self._job_id)
        return run.run_id if run is not None else self._job_id

    def _verdict_lines(self, width: int) -> list[Line]:
        """The cause on top, or the word for no finding."""
        diagnosis = self.context.diagnoses.get(self._target)
        if diagnosis is None and not self.targets:
            return []
        if diagnosis is None:
            return [(*look_line(None), muted(" · its files are being read")), BLANK]
        can_fix = self.context.mode is Mode.LIVE
        return [*outcome_lines(diagnosis, width), *findings_lines(diagnosis, width, can_fix), BLANK]

    def _lines(self, folded: FoldedJob, width: int) -> list[Line]:
        job, now_s, answers = folded.job, self.context.now_s, self.context.answers
        if self._are_facts_shown:
            return [job_head(job, self.context.user), BLANK, *job_lines(job, now_s)]
        rows = [job_head(job, self.context.user), *self._verdict_lines(width)]
        if self._past is not None:
            rows += [*efficiency_lines(self._past, now_s, width), BLANK]
        waiting = next((part for part in folded.parts if part.state == "PENDING"), None)
        if waiting is not None:
            rows += [*why_lines(waiting, now_s, width), BLANK]
        if folded.num_tasks > 1:
            rows += task_lines(folded, unfold(folded), now_s, width)
        if Question.ALLOCATIONS in self.questions:
            told = answers[Question.ALLOCATIONS]
            rows.append(asked_line("gpus", told, now_s))
            if told.value is not None:
                rows += held_gpu_lines(self._slots(folded, told.value), width)
            rows.append(BLANK)
        if Question.PLACE_IN_QUEUE in self.questions:
            told = answers[Question.PLACE_IN_QUEUE]
            rows.append(asked_line("place in the queue", told, now_s))
            if told.value is not None:
                rows += place_lines(told.value, job, now_s, width)
            rows.append(BLANK)
        if job.state == "RUNNING" and job.raw_job_id is not None and is_own(job, self.context.user):
            rows += [*self._telemetry(job, width), BLANK]
        if self.targets:
            return [*rows, facts_line(job, now_s, width)]
        return [*rows, *job_lines(job, now_s)]

    def _telemetry(self, job: Job, width: int) -> list[Line]:
        run, sources = self.context.run_of_job(job.job_id), self.context.snapshot.sources
        target = run.run_id if run is not None else job.job_id
        stream = sources.get(f"stream:{target}")
        error = stream.error if stream is not None else None
        asked = self.context.answers[Question.STEP_USE]
        rows = step_use_lines(asked, (asked.value or {}).get(job.raw_job_id, ()), self.context.now_s, width)
        told = self.context.snapshot.targets.get(target)
        gaps = told.sensor_gaps if told is not None else ()
        return rows + telemetry_lines(
            self.context.session.history(target), gaps, error, self.context.now_s, width
        )

    def _slots(self, folded: FoldedJob, allocations: tuple[GpuAllocation, ...]) -> list[GpuSlot]:
        """The GPUs that it has, as far as its nodes say the same."""
        ids = {job.job_id for job in folded.parts}
        names = {name for job in folded.parts for name in expand_nodes(job.nodes)}
        nodes = [node for node in self.context.snapshot.nodes if node.name in names]
        return [slot for slot in allocation_map(nodes, allocations) if slot.job_id in ids]
