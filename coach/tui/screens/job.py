"""The Job screen, for jobs launched by coach or not: why the job ended, the proof and the fix, its course,
and the end of its log.

For a waiting job it shows why it waits. The key `v` shows further facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from textual.widget import Widget

from coach.analysis.queueing.arrays import FoldedJob
from coach.analysis.queueing.free_gpus import GpuSlot, allocation_map
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.cluster import Job, is_final
from coach.model.training.run import Run
from coach.render.text import crumb, line, muted, printable
from coach.sources.slurm.node_sets import expand_nodes
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.job_choice import Chosen, JobChoice, JobKeys, choose_job, choose_run
from coach.tui.job_subject import JobSubject, job_subject, rows_named, run_named
from coach.tui.keys import Key
from coach.tui.messages import ExplainWanted, PagerRequested, ScreenOpened, ScreenShown, Wanted
from coach.tui.question import Question
from coach.tui.render.finding import cause_place
from coach.tui.render.job_page import facts_lines, hidden_job_words, page_lines
from coach.tui.render.queue import is_own
from coach.tui.widgets.cause_and_log import CauseAndLog

_JOB_ID = re.compile(r"\d{1,18}(?:_\d{1,9})?", re.ASCII)
_LATEST_S = 3.0
"""Seconds by which the controller's time of a submission may lie behind the time of a queue without it."""
_UNREAD_STATES = frozenset({"PENDING", "CONFIGURING"})
"""A job in these states has no files to read yet."""


class JobScreen(JobKeys, CoachScreen, screen="job"):
    """One job, live."""

    def __init__(self, context: Context, name: str, past: PastJob | None = None) -> None:
        """`name` is a run's id, a job id or an array's id; `past` is an ended job that has left the queue."""
        super().__init__(context, ("cluster", crumb(context.run(name) is not None, name)))
        self.job_choice = JobChoice(self, self._chosen)
        self._asked_for = name
        self._past = past
        self._found: tuple[tuple[Job, ...], FoldedJob | None] = ((), None)
        """A cache: the queue in which the job was last looked up, and the job."""
        self._has_asked = False
        self._are_facts_shown = False
        self._is_log = False
        self._first_chart = 0

    def compose_body(self) -> Iterator[Widget]:
        yield CauseAndLog(id="job")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    # Subject

    @property
    def _run(self) -> Run | None:
        return run_named(self.context, self._asked_for)

    @property
    def target(self) -> str:
        """The followed target: the run's id, else the job id."""
        run = self._run
        return run.run_id if run is not None else self._asked_for

    @property
    def subjects(self) -> tuple[str, ...]:
        """Of an array also its tasks."""
        folded = self._found[1]
        return (
            (self.target, *(part.job_id for part in folded.parts if folded.is_folded))
            if folded
            else (self.target,)
        )

    def _folded(self) -> FoldedJob | None:
        """The job's row. The last row is kept after the job has left the queue."""
        jobs = self.context.snapshot.jobs
        if self._found[0] is not jobs or self._found[1] is None:
            found, kept = rows_named(self.context, self._asked_for, self._past), self._found[1]
            if kept is not None and self._run is not None and kept.job.job_id in self._run.earlier_job_ids:
                kept = None  # the run was resumed, and the queue is older
            self._found = (jobs, found or kept)
        return self._found[1]

    # Display

    def show(self) -> None:
        context, folded = self.context, self._folded()
        if folded is not None:
            self._ask(folded)
        subject = job_subject(context, self._asked_for, folded, self._past)
        self._follow(subject)
        if not subject.is_known:
            self._ask_for_ended()
            self.pane("#body").set_lines([line(muted(f" {text}")) for text in self._why_unknown()])
            return
        if folded is not None and self._past is None and self._is_forgotten(folded):
            self.note("no longer in the queue: this is its last known state")
        if subject.run is not None and subject.rate is not None:
            context.rates[subject.target] = subject.rate
        page = replace(
            subject,
            is_read=bool(self.targets),
            can_fix=context.mode.is_live,
            questions=self.questions,
            slots=self._slots(folded),
            is_log=self._is_log,
            first_chart=self._first_chart,
        )
        lines_of = facts_lines if self._are_facts_shown else page_lines
        followed = None if self._are_facts_shown else subject.followed
        self.query_one(CauseAndLog).show(
            lambda width, height: lines_of(page, width, height),
            followed.log_tails if followed is not None else (),
            cause_place(subject.diagnosis),
            self.context.now_s if subject.is_live else None,
        )

    def _ask_for_ended(self) -> None:
        """Ask for the ended jobs, once: a job or array that is in no list may be among them."""
        if Question.PAST_JOBS not in self.questions:
            self.questions = (*self.questions, Question.PAST_JOBS)
            self.post_message(Wanted(Question.PAST_JOBS))

    def _why_unknown(self) -> tuple[str, ...]:
        """The text for a job that is in no list."""
        sources = self.context.snapshot.sources
        asked, queue = sources.get(f"row:{self._asked_for}"), sources.get("jobs")
        if self.targets and queue is not None and queue.error is not None:
            told = f"Slurm does not answer: {printable(queue.error)}"
            return (f"job {printable(self._asked_for)} is in no list that coach has", told)
        is_asked = self.context.answers[Question.PAST_JOBS].is_under_way
        if is_asked or (self.targets and (asked is None or asked.data_time_s is None)):
            return (f"asking Slurm for job {printable(self._asked_for)}…",)
        label = self.context.label
        if "jobs" in self.context.snapshot.hidden:
            return hidden_job_words(self._asked_for)
        return (
            f"Slurm knows no job {printable(self._asked_for)}, and coach has not seen one of that number",
            f"on the first screen {label('all')} lists everybody's jobs,"
            f" {label('history')} yours that have ended",
        )

    def _is_forgotten(self, folded: FoldedJob) -> bool:
        """True if the queue does not have the job any more. A queue that was read before the job was
        submitted does not have it yet."""
        known, queue = self.context.jobs_by_id, self.context.snapshot.sources.get("jobs")
        if is_final(folded.job.state) or any(part.job_id in known for part in folded.parts):
            return False
        submitted_s, read_s = folded.job.submit_time_s, queue.data_time_s if queue is not None else None
        return submitted_s is None or read_s is None or read_s > submitted_s + _LATEST_S

    def _slots(self, folded: FoldedJob | None) -> list[GpuSlot]:
        """The job's GPUs, if its nodes agree on them."""
        allocations = self.context.answers[Question.ALLOCATIONS].value
        if folded is None or allocations is None:
            return []
        ids = {job.job_id for job in folded.parts}
        names = {name for job in folded.parts for name in expand_nodes(job.nodes)}
        nodes = [node for node in self.context.snapshot.nodes if node.name in names]
        return [slot for slot in allocation_map(nodes, allocations) if slot.job_id in ids]

    def _follow(self, subject: JobSubject) -> None:
        """Have the job read and judged while its screen is on top. Of an array, only single tasks get a
        verdict."""
        is_read = subject.run is not None or self._can_be_read(subject.folded)
        wanted = (subject.target,) if is_read else ()
        if wanted != self.targets:
            self.targets = wanted
            self.post_message(ScreenShown())

    def _can_be_read(self, folded: FoldedJob | None) -> bool:
        if self.context.mode.is_recorded:
            return False
        if folded is None:
            return _JOB_ID.fullmatch(self._asked_for) is not None
        return folded.num_tasks == 1 and folded.job.state not in _UNREAD_STATES

    def _ask(self, folded: FoldedJob) -> None:
        """Ask the questions that fit the job's current state. When the state changes, ask anew: older answers
        do not cover it."""
        has_ended = self._run is not None and is_final(self.context.state_of(self._run) or "")
        # The queue may be older than the run's end.
        wanted = () if has_ended else self._questions_about(folded)
        for question in wanted:
            if question not in self.questions:
                self.post_message(Wanted(question, is_anew=self._has_asked))
        self.questions, self._has_asked = wanted, True

    def _questions_about(self, folded: FoldedJob) -> tuple[Question, ...]:
        if all(job.raw_job_id is None for job in folded.parts):
            return ()
        is_mine = is_own(folded.job, self.context.user)
        # A recording has measurements, but no answers.
        is_recorded = self.context.mode.is_recorded
        reasons = {
            Question.PLACE_IN_QUEUE: is_mine and any(job.state == "PENDING" for job in folded.parts),
            Question.ALLOCATIONS: not is_recorded
            and any(job.num_gpus and job.nodes and not is_final(job.state) for job in folded.parts),
            Question.STEP_USE: not is_recorded and is_mine and folded.job.state == "RUNNING",
        }
        return tuple(question for question, is_wanted in reasons.items() if is_wanted)

    # Keys

    def keys(self) -> tuple[Key, ...]:
        run, keys = self._run, super().keys()
        is_drill = run is not None and run.drill is not None
        return tuple(key for key in keys if is_drill or key.id != "answer")

    def unfit_keys(self) -> frozenset[str]:
        """Those that this job cannot use."""
        run, folded = self._run, self._folded()
        if run is not None:
            states = {self.context.state_of(run)}
        else:
            states = {part.state for part in folded.parts} if folded is not None else {None}
        has_ended = all(state is not None and is_final(state) for state in states)
        return frozenset((*(["cancel"] if has_ended else []), *(["compare"] if run is None else [])))

    def _chosen(self) -> list[Chosen]:
        folded, run = self._folded(), self._run
        if run is not None:
            return [choose_run(self.context, run)]
        if folded is None:
            return []
        return [choose_job(self.context, folded.job, self._asked_for, is_array=len(folded.parts) > 1)]

    def action_open(self) -> None:
        if self.target in self.context.diagnoses:
            self.post_message(ScreenOpened("finding", self.target))
        else:
            self.note(
                "nothing is found yet" if self.targets else "coach does not read this job: it has no finding"
            )

    def action_copy(self) -> None:
        self.copy(self.crumbs[-1], self.target)

    def action_explain(self) -> None:
        self.post_message(ExplainWanted(self.target, page=(self._folded(), self._run)))

    def action_view(self) -> None:
        self._are_facts_shown = not self._are_facts_shown
        self.refresh_all()

    def action_scale(self) -> None:
        self._is_log = not self._is_log
        self.refresh_all()

    def action_quantity(self) -> None:
        self._first_chart += 1
        self.refresh_all()

    def action_log(self, name: str) -> None:
        """`stdout.log` or `stderr.log`."""
        why_not = self.query_one(CauseAndLog).choose(name.partition(".")[0])
        if why_not is not None:
            self.note(why_not)
        self.refresh_all()

    def action_pager(self) -> None:
        file = self.query_one(CauseAndLog).file
        if file is None:
            self.note("its log is not read yet")
        elif self.context.mode.is_recorded:
            self.note("this is a recording: the file is not here")
        else:
            self.post_message(PagerRequested(file))

    def action_answer(self) -> None:
        run = self._run
        if run is None or run.drill is None:
            self.note(f"this is not a drill: {self.context.label('drills')} lists them")
        else:
            self.post_message(ScreenOpened("answer", run.run_id))
