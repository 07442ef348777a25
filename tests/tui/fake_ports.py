"""Scripted ports: each remembers its requests, and refuses when a test says so."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coach.analysis.comparing.steady_state import newest_step
from coach.analysis.jobs.notices import Notice
from coach.launch.job_control import action_command
from coach.launch.resubmission import Resubmission
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.doctor_report import Report
from coach.model.judging.finding import Diagnosis, Finding, Fix
from coach.model.launching.ladder import Ladder, Rung
from coach.model.launching.launch import LaunchRequest, OwnKind, OwnProgram, Plan, Submitted
from coach.model.slurm.accounting import Part
from coach.model.slurm.cluster import GpuAllocation, Reservation
from coach.model.slurm.job_action import JobAction, LeftOut, Outcome, QueuedJob, Verb
from coach.model.slurm.job_action import Step as Command
from coach.model.snapshot import TargetSnapshot
from coach.model.teaching.cohort import Cohort
from coach.model.teaching.drill import Answer
from coach.model.training.log_window import LogLook, LogWindow
from coach.model.training.run import Run
from coach.model.training.stacks import Stacks, StacksPlan
from coach.model.training.telemetry import StepUse
from coach.sources.io import SystemIo
from coach.sources.logs.log_windows import LogWindows, Stopped, both_by_time
from coach.sources.slurm.kept_script import FoundScript
from coach.sources.slurm.overlap_step import StreamSource
from coach.tui.ports import RecipeKey, RuleTitle
from coach.tui.question import Question
from coach.workflows.jobs.ended_jobs import PastJobs
from coach.workflows.jobs.place_in_queue import PlaceInQueue
from coach.workflows.launching.foreign_fix import ForeignFixes, foreign_fixes
from coach.workflows.launching.launchables import Launchable, Launchables, Origin
from coach.workflows.launching.recipes import Page
from coach.workflows.launching.relaunch_offer import RelaunchOffer
from coach.workflows.teaching.drill_answer import Judgement
from coach.workflows.teaching.drills import DrillEntry
from tests.tui.fake_session import (
    CHILD_ID,
    LOST,
    NOW_S,
    RUN_ID,
    make_cohort,
    make_drills,
    make_judgement,
    make_pages,
    make_place,
    make_plan,
    make_stacks,
    nan_diagnosis,
)


@dataclass
class FakeRecipes:
    """Two recipes with keys."""

    def recipe_keys(self) -> tuple[RecipeKey, ...]:
        return (
            RecipeKey("1", "baseline", "One device"),
            RecipeKey("2", "ddp", "DDP: one process per device"),
        )

    def recipe_pages(self) -> tuple[tuple[Page, ...], tuple[UserError, ...]]:
        return make_pages(), ()

    def ladder_request(self, recipe: str, backend: str) -> LaunchRequest:
        rungs = (Rung("one", "baseline"), Rung("many", recipe))
        return LaunchRequest("baseline", backend, ladder=Ladder("demos", "The demos", rungs))


@dataclass
class FakeLaunchables:
    """A row of each kind."""

    directory: Path = Path("/home/ada/project")
    opened: list[Launchable] = field(default_factory=list)
    refusal: UserError | None = None

    def launchables(self) -> Launchables:
        again = LaunchRequest("train", own=OwnProgram(OwnKind.COMMAND, ("./train.sh", "1"), "/home/ada"))
        rows = (
            Launchable(Origin.YOURS, "pretrain", "The whole corpus", LaunchRequest("coach.toml:pretrain")),
            Launchable(Origin.RECENT, "./train.sh 1", "", again, NOW_S - 7200),
            Launchable(Origin.FILE, "tools/finetune.py", "", LaunchRequest("tools/finetune.py")),
            Launchable(Origin.RECIPE, "ddp", "DDP: one process per device", LaunchRequest("ddp")),
        )
        return Launchables(str(self.directory), rows, ("2 more files are not shown",))

    def request_of(self, row: Launchable) -> LaunchRequest:
        self.opened.append(row)
        if self.refusal is not None:
            raise self.refusal
        return row.request


@dataclass
class FakeLaunches:
    """Remembers planned and submitted launches; refuses on request."""

    submitted: list[Plan] = field(default_factory=list)
    requests: list[LaunchRequest] = field(default_factory=list)
    refusal: UserError | None = None
    refusals: list[UserError] = field(default_factory=list)
    """Refusals of submissions, one after the other."""
    before_prepare: Callable[[], None] = lambda: None
    notes: tuple[str, ...] = ()
    """The notes of each submission."""

    def prepare(self, request: LaunchRequest, run_id: str | None = None) -> Plan:
        self.before_prepare()
        self.requests.append(request)
        return make_plan(request)

    def preview(self, request: LaunchRequest) -> tuple[tuple[str, ...], str]:
        before, after = make_plan(replace(request, set={})), make_plan(request)
        diff = tuple(difflib.unified_diff(before.script.splitlines(), after.script.splitlines(), lineterm=""))
        return diff, after.script

    def submit(self, plan: Plan) -> Submitted:
        if self.refusals:
            raise self.refusals.pop(0)
        if self.refusal is not None:
            raise self.refusal
        self.submitted.append(plan)
        return Submitted(plan.run_id, plan.run_dir, "18", "PENDING", self.notes)


AGAIN = Resubmission(
    *(
        "99",
        "bert",
        {"BatchFlag": "1", "WorkDir": "/home/ada", "TimeLimit": "00:30:00", "MinMemoryNode": "4G"},
    ),
    *("#!/bin/bash\npython train.py\n", Path("/home/ada/job.sh"), True, ("the script is there",), 30.0),
)


@dataclass
class FakeFixes:
    """Offers another learning rate; remembers the relaunches."""

    relaunched: list[tuple[RelaunchOffer, str]] = field(default_factory=list)
    again: Resubmission | None = AGAIN
    """What submits any job again; None: nobody has its script."""

    def offer_fix(
        self,
        run: Run,
        finding: Finding,
        fix: Fix,
        target: TargetSnapshot,
        history: History,
        is_trial: bool = False,
    ) -> RelaunchOffer:
        trial = {"max_steps": 100} if is_trial else {}
        plan = make_plan(LaunchRequest(run.recipe, set={"lr": 0.05, **trial}))
        diff = ("--- parent", "+++ child", "@@ -9,1 +9,1 @@", "-  --lr 1e+20", "+  --lr 0.05")
        newest = newest_step(history)
        checkpoint = target.checkpoints[-1] if target.checkpoints else None
        return RelaunchOffer(
            run,
            finding,
            fix,
            plan,
            diff,
            (("lr", "1e+20", "0.05"),),
            run.state == "RUNNING",
            newest.step if newest is not None else None,
            checkpoint,
            LOST,
            dict.fromkeys(("cancel", "keep", "wait"), (f"sbatch --parsable /runs/{CHILD_ID}/job.sh",)),
        )

    def find_again(self, job_id: str) -> Resubmission:
        if self.again is None:
            raise UserError(f"job {job_id}: its batch script is not available any more")
        return self.again

    def foreign_fixes(
        self, target: TargetSnapshot, history: History, diagnosis: Diagnosis
    ) -> tuple[ForeignFixes, tuple[str, ...]]:
        script = FoundScript("#!/bin/bash\npython train.py --num_workers 2\n", "as Slurm keeps it", {})
        return foreign_fixes(target, history, diagnosis, script, ()), LOST

    def relaunch(self, offer: RelaunchOffer, parent_choice: str) -> Submitted:
        self.relaunched.append((offer, parent_choice))
        return Submitted(CHILD_ID, f"/runs/{CHILD_ID}", "19", "PENDING")


@dataclass
class FakeJobActions:
    """Remembers the actions; refuses on request."""

    performed: list[JobAction] = field(default_factory=list)
    paged: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)
    has_tmux: bool = True
    refusal: UserError | None = None

    def plan_action(self, verb: Verb, targets: Sequence[str], time_limit_s: int | None = None) -> JobAction:
        if verb is Verb.RESUME:
            return JobAction(verb, (Command(("sbatch", "--parsable", "/runs/job.sh"), tuple(targets)),))
        job_ids = tuple("17" if target == RUN_ID else target for target in targets)
        left_out = tuple(LeftOut(job_id, "it has ended already (FAILED)") for job_id in job_ids[2:])
        argv = action_command(verb, job_ids[:2], time_limit_s)
        step = Command(argv, job_ids[:2])
        rows = tuple(QueuedJob(job_id, job_id, "ada", "PENDING", name="bert") for job_id in job_ids[:2])
        return JobAction(verb, (step,), left_out, rows)

    def plan_resubmit(self, target: str) -> LaunchRequest | JobAction:
        if target == RUN_ID:
            return LaunchRequest("ddp", parent_run_id=RUN_ID)
        script = "#!/bin/bash\necho '[bold]\x1b[31m'"
        return JobAction(
            Verb.RESUBMIT, (Command(("sbatch", "--chdir=/home/ada", "x.sh"), (target,)),), script=script
        )

    def perform(self, action: JobAction) -> Outcome:
        if self.refusal is not None:
            raise self.refusal
        self.performed.append(action)
        return Outcome(action.verb, action.job_ids)

    def attach(self, action: JobAction, target: str) -> tuple[StreamSource, ...]:
        self.performed.append(action)
        return (StreamSource(target, action.steps[0].argv, {}),)

    def copy(self, text: str) -> bool:
        self.copied.append(text)
        return self.has_tmux

    def open_pager(self, file: str) -> int:
        self.paged.append(file)
        return 0

    def open_shell(self, action: JobAction) -> int:
        self.performed.append(action)
        return 0


@dataclass
class FakeStacks:
    """Remembers the commands; refuses when told to."""

    taken: list[str] = field(default_factory=list)
    refusal: UserError | None = None

    def plan_stacks(self, target: str) -> StacksPlan:
        argv = ("srun", f"--jobid={target}", "--overlap", "python", "stacks")
        return StacksPlan(f"job {target}", argv, Path("/runs/r/stacks/1"), 2, must_ask=target != RUN_ID)

    def take_stacks(self, plan: StacksPlan) -> Stacks:
        if self.refusal is not None:
            raise self.refusal
        self.taken.append(plan.command)
        return make_stacks()


@dataclass
class FakeDrills:
    """Remembers the answers; the right one is the input pipeline."""

    answered: list[tuple[str, str | None]] = field(default_factory=list)
    spoiled: str | None = None

    def drills(self) -> tuple[tuple[DrillEntry, ...], tuple[UserError, ...]]:
        return make_drills(), ()

    def judgement(self, run_id: str) -> Judgement:
        return make_judgement(run_id)

    def answer_drill(self, run_id: str, cause: str | None) -> Judgement:
        self.answered.append((run_id, cause))
        is_right = cause == "input_bound" and self.spoiled is None
        answer = Answer(cause, is_right, NOW_S, spoiled=self.spoiled)
        if self.spoiled is not None:
            return make_judgement(run_id, answer)
        if not answer.is_settled:
            return make_judgement(run_id, answer, against=(f"GPU000 saw nothing of {cause}",))
        finding = replace(nan_diagnosis().findings[0], rule="GPU005", cause="input_bound")
        return make_judgement(
            run_id, answer, planted="input_bound", findings=(finding,), lesson="# The lesson\n\nMore workers."
        )


@dataclass
class FakeQuestions:
    """Remembers the questions; on request it does not answer."""

    asked: list[Question] = field(default_factory=list)
    place: PlaceInQueue = field(default_factory=make_place)
    reservations: Part[tuple[Reservation, ...]] = field(default_factory=lambda: Part(()))
    held_gpus: tuple[GpuAllocation, ...] = ()
    past: PastJobs = field(default_factory=lambda: PastJobs((), (), 0))
    failed: PastJobs = field(default_factory=lambda: PastJobs((), (), 0))
    cohort: Cohort = field(default_factory=make_cohort)
    report: Report = field(default_factory=lambda: Report((), 0.0))
    refusal: UserError | None = None
    before_answer: Callable[[], object] = lambda: None
    stopped: list[Question] = field(default_factory=list)

    def stop(self, question: Question) -> None:
        self.stopped.append(question)

    def answer(self, question: Question) -> Any:
        if question is Question.REMEMBERED:  # the first screen always asks it
            return self.failed
        self.asked.append(question)
        self.before_answer()
        if self.refusal is not None:
            raise self.refusal
        use = (StepUse("41.0", 8, 2048.0, 613.0, 40000.0), StepUse("41.batch", 1, None, None, None))
        return {
            Question.PLACE_IN_QUEUE: self.place,
            Question.RESERVATIONS: self.reservations,
            Question.ALLOCATIONS: self.held_gpus,
            Question.STEP_USE: {"41": use},
            Question.PAST_JOBS: self.past,
            Question.COHORT: self.cohort,
        }[question]

    def explain_rule(self, code: str) -> str:
        if code == "NUM001":
            return f"{code} loss-not-finite [critical]\n\nWhat it sees\n  A loss that is NaN.\n"
        raise UserError(f"there is no rule {code}")

    def rule_titles(self) -> tuple[RuleTitle, ...]:
        return (
            RuleTitle("MEM001", "cuda-out-of-memory · A GPU's memory did not suffice."),
            RuleTitle("NUM001", "loss-not-finite · The loss is NaN or infinite."),
        )

    def examine(self) -> Report:
        return self.report


@dataclass
class FakeLogs:
    """Reads real files."""

    looks: list[LogLook] = field(default_factory=list)

    def read_log(
        self, look: LogLook, owner: int | None, counted: object, heed: Callable[[int, int], bool]
    ) -> LogWindow | None:
        self.looks.append(look)
        try:
            windows = [LogWindows(SystemIo({}), Path(file)).look(look, heed) for file in look.files]
        except Stopped:
            return None
        return windows[0] if len(windows) == 1 else both_by_time(*windows)


@dataclass
class FakeNotices:
    """Records the notices."""

    in_tmux: list[str] = field(default_factory=list)
    commands: list[Notice] = field(default_factory=list)
    has_tmux: bool = True

    def show_in_tmux(self, text: str) -> bool:
        self.in_tmux.append(text)
        return self.has_tmux

    def run_command(self, notice: Notice) -> None:
        self.commands.append(notice)


@dataclass
class FakePorts:
    """All of them; a test gives those that it is about."""

    recipes: FakeRecipes = field(default_factory=FakeRecipes)
    launches: FakeLaunches = field(default_factory=FakeLaunches)
    fixes: FakeFixes = field(default_factory=FakeFixes)
    job_actions: FakeJobActions = field(default_factory=FakeJobActions)
    stacks: FakeStacks = field(default_factory=FakeStacks)
    logs: FakeLogs = field(default_factory=FakeLogs)
    drills: FakeDrills = field(default_factory=FakeDrills)
    questions: FakeQuestions = field(default_factory=FakeQuestions)
    launchables: FakeLaunchables = field(default_factory=FakeLaunchables)
    notices: FakeNotices = field(default_factory=FakeNotices)
