"""The ports: what the controllers call in the workflows. `tests/tui/fake_ports.py` scripts the same methods.

The workflows are imported on first use, so that the first frame does not wait for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coach.config import Settings
from coach.late import late
from coach.model.errors import UserError
from coach.model.judging.doctor_report import Report
from coach.model.judging.finding import Diagnosis, Finding, Fix
from coach.model.launching.launch import LaunchRequest, Plan, Submitted
from coach.model.slurm.job_action import JobAction, Outcome, Verb
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.model.training.stacks import Stacks, StacksPlan
from coach.sources.io import Io, OwnerIo, SystemIo, scrubbed_environment
from coach.sources.machine.user import user_name
from coach.sources.rpc_budget import RpcBudget, cost_of
from coach.tui.ports import RecipeKey, RuleTitle
from coach.tui.question import Question
from coach.workflows.backend import resolve_backend

if TYPE_CHECKING:
    from coach.analysis.jobs.notices import Notice
    from coach.launch.resources import Site
    from coach.launch.resubmission import Resubmission
    from coach.lookback.history import History
    from coach.model.slurm.accounting import Part
    from coach.model.slurm.cluster import GpuAllocation, Reservation
    from coach.model.teaching.cohort import Cohort
    from coach.model.training.log_window import LogLook, LogWindow
    from coach.sources.logs.log_windows import LogWindows
    from coach.sources.slurm.overlap_step import StreamSource
    from coach.workflows.jobs.ended_jobs import PastJobs
    from coach.workflows.jobs.place_in_queue import PlaceInQueue
    from coach.workflows.launching.foreign_fix import ForeignFixes
    from coach.workflows.launching.launchables import Launchable, Launchables
    from coach.workflows.launching.recipes import Page
    from coach.workflows.launching.relaunch_offer import RelaunchOffer
    from coach.workflows.teaching.drill_answer import Judgement
    from coach.workflows.teaching.drills import DrillEntry
    from coach.workflows.watching.step_use import StepUses

if TYPE_CHECKING:
    from coach.analysis.jobs import notices
    from coach.launch import recipe, topics
    from coach.rules import documentation, registry
    from coach.sources.logs import log_windows
    from coach.sources.machine import terminal, tmux
    from coach.sources.slurm import client, start_times
    from coach.workflows import doctor
    from coach.workflows.jobs import (
        attach,
        ended_jobs,
        job_actions,
        lost_work,
        place_in_queue,
        remembered,
        stacks,
    )
    from coach.workflows.judging import judge
    from coach.workflows.launching import (
        find_again,
        fix_offer,
        foreign_fix,
        group_members,
        ladders,
        launchables,
        prepare,
        recipes,
        refusals,
        relaunch,
        resubmit,
        resume,
        sweep,
    )
    from coach.workflows.teaching import cohort, drill_answer, drills
    from coach.workflows.watching import step_use, user_command
else:
    notices = late("coach.analysis.jobs", "notices")
    recipe, topics = late("coach.launch", "recipe", "topics")
    documentation, registry = late("coach.rules", "documentation", "registry")
    log_windows = late("coach.sources.logs", "log_windows")
    terminal, tmux = late("coach.sources.machine", "terminal", "tmux")
    client, start_times = late("coach.sources.slurm", "client", "start_times")
    doctor = late("coach.workflows", "doctor")
    attach, ended_jobs, job_actions = late("coach.workflows.jobs", "attach", "ended_jobs", "job_actions")
    remembered = late("coach.workflows.jobs", "remembered")
    lost_work, place_in_queue, stacks = late("coach.workflows.jobs", "lost_work", "place_in_queue", "stacks")
    judge = late("coach.workflows.judging", "judge")
    find_again, fix_offer, foreign_fix = late(
        "coach.workflows.launching", "find_again", "fix_offer", "foreign_fix"
    )
    group_members, ladders, launchables, prepare = late(
        "coach.workflows.launching", "group_members", "ladders", "launchables", "prepare"
    )
    recipes, refusals = late("coach.workflows.launching", "recipes", "refusals")
    relaunch, resubmit, resume, sweep = late(
        "coach.workflows.launching", "relaunch", "resubmit", "resume", "sweep"
    )
    cohort, drill_answer, drills = late("coach.workflows.teaching", "cohort", "drill_answer", "drills")
    step_use, user_command = late("coach.workflows.watching", "step_use", "user_command")

PAST_S = 7 * 86400.0
"""How far back the list of ended jobs goes."""
MAX_PAST_JOBS = 200
NOTICE_TIMEOUT_S = 20.0
"""How long the user's own command for notices may take."""
SITE_AGE_S = 60.0
"""While a plan is edited, coach asks for the cluster's nodes and limits again after this time."""


class Reach:
    """Settings, environment and Io of all ports, and the count of the RPCs that their commands cost."""

    def __init__(
        self,
        settings: Settings,
        env: Mapping[str, str],
        budget: RpcBudget | None = None,
    ) -> None:
        """`budget` limits all RPCs that are sent to Slurm; None: a budget of its own."""
        self.settings = settings
        self.env = env
        self._budget = budget or RpcBudget()
        self.io = self._io(self._count)
        """For the user's actions: its RPCs are counted and never delayed."""
        self.spare: Callable[[Io], Io] = lambda io: io
        """Makes an Io that asks Slurm nothing during an outage."""

    def asking_io(self) -> SystemIo:
        """An Io for one question of a screen: a command runs only if the budget allows it, and its `stop`
        ends the question."""
        io = self._io(lambda num_rpcs: self._budget.ask(num_rpcs, lambda: io.is_stopped))
        return io

    def charge(self, num_rpcs: int) -> None:
        """Count RPCs of a user's action that does not use `io`."""
        self._budget.charge(num_rpcs)

    def _count(self, num_rpcs: int) -> bool:
        self.charge(num_rpcs)
        return True

    def _io(self, before_command: Callable[[int], bool]) -> SystemIo:
        return SystemIo(
            scrubbed_environment(self.env),
            timeout_s=self.settings.slurm_timeout_s,
            before_command=before_command,
        )

    def use(self, settings: Settings) -> None:
        """Use these settings from now on. May be called from any thread."""
        self.settings = settings


@dataclass(frozen=True, slots=True)
class LiveRecipes:
    """coach's recipes and the user's own."""

    _reach: Reach

    def recipe_keys(self) -> tuple[RecipeKey, ...]:
        """All recipes, first those with a key."""
        return tuple(
            RecipeKey(key, name, title) for key, name, title in recipes.recipe_keys(self._reach.settings)
        )

    def recipe_pages(self) -> tuple[tuple[Page, ...], tuple[UserError, ...]]:
        """All recipes in the order of the ladder, and an error for each one that cannot be read."""
        return recipes.pages(self._reach.settings)

    def ladder_request(self, recipe: str, backend: str) -> LaunchRequest:
        """The launch of the ladder that has this recipe as a rung. Raises UserError if no ladder is read."""
        ladder = ladders.ladder_with(recipe, self._reach.settings)
        return ladders.request_of_ladder(ladder, LaunchRequest(recipe, backend))


@dataclass(frozen=True, slots=True)
class LiveLaunchables:
    """Launches that the working directory offers."""

    _reach: Reach

    def launchables(self) -> Launchables:
        """The project's trainings, earlier commands, files and recipes."""
        return launchables.find_launchables(self._reach.settings, self._reach.io)

    def request_of(self, row: Launchable) -> LaunchRequest:
        """The launch request of a row. Raises UserError for a file that cannot be launched."""
        return launchables.request_of(row, Path.cwd())


class LiveLaunches:
    """Plans and submissions. It keeps the cluster's nodes and limits for a minute, since every edit makes a
    new plan."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._site: tuple[float, Site] | None = None
        self._lost: dict[str, tuple[str, ...]] = {}
        """For each recipe, warnings about launches whose answer from sbatch was lost. They are refreshed with
        the cluster's nodes and limits."""
        self._previewed: tuple[tuple[str, str], Plan] | None = None
        """The recipe and backend of the last preview, and the plan of that recipe's defaults."""

    def prepare(self, request: LaunchRequest, run_id: str | None = None) -> Plan:
        """The plan of a launch. `run_id` keeps the id of a plan that is being edited."""
        request = prepare.with_defaults(request, self._reach.settings)
        request = group_members.with_lists_swept(request, recipe.recipe_of(request))
        backend = resolve_backend(request.backend, self._reach.env, self._reach.settings)
        now_s = time.monotonic()
        if (
            run_id is None
            or self._site is None
            or now_s - self._site[0] > SITE_AGE_S
            or self._site[1].backend != backend
        ):
            self._site = (now_s, prepare.look_at_site(backend, self._reach.io, self._reach.settings))
            self._lost = {}
        site = self._site[1]
        if request.recipe not in self._lost:
            self._lost[request.recipe] = prepare.interrupted_launches(
                request, backend, self._reach.settings, self._reach.io
            )
        plan = sweep.plan_all(
            request, self._reach.settings, self._reach.env, self._reach.io, site, self._reach.io.now(), run_id
        )
        return replace(plan, warnings=(*self._lost[request.recipe], *plan.warnings))

    def preview(self, request: LaunchRequest) -> tuple[tuple[str, ...], str]:
        """The diff, in lines, between the script of the recipe's defaults and the request's script; and the
        request's script."""
        key = (request.recipe, request.backend)
        if self._previewed is None or self._previewed[0] != key:
            self._previewed = (key, self.prepare(replace(request, set={})))
        base = self._previewed[1]
        plan = self.prepare(request, base.run_id)
        return relaunch.script_diff(base.script, base.run_id, plan), plan.script

    def submit(self, plan: Plan) -> Submitted:
        submitted = sweep.submit(plan, self._reach.settings, self._reach.env, self._reach.io)
        self._reach.settings, notes = refusals.remember_answers(plan, self._reach.settings)
        notes = tuple(line for each in submitted for line in each.notes) + notes
        return replace(submitted[0], notes=notes)


@dataclass(frozen=True, slots=True)
class LiveFixes:
    """Fixes. For a run, a fix is a new launch."""

    _reach: Reach

    def offer_fix(
        self,
        run: Run,
        finding: Finding,
        fix: Fix,
        target: TargetSnapshot,
        history: History,
        is_trial: bool = False,
    ) -> RelaunchOffer:
        """The relaunch that a fix offers. `run` has its current state."""
        return fix_offer.offer(
            run,
            fix_offer.remedy_of(run, finding, fix),
            target,
            history,
            self._reach.settings,
            self._reach.env,
            self._reach.io,
            trial_steps=fix_offer.TRIAL_STEPS if is_trial else None,
        )

    def find_again(self, job_id: str) -> Resubmission:
        """The commands that submit again a job that coach did not launch. Raises UserError if its script
        cannot be found."""
        return find_again.find_again(job_id, self._reach.settings, self._reach.env, self._reach.io)

    def foreign_fixes(
        self, target: TargetSnapshot, history: History, diagnosis: Diagnosis
    ) -> tuple[ForeignFixes, tuple[str, ...]]:
        """The fixes of a job that coach did not launch, and the work that ending it now would lose. It
        changes nothing."""
        found = foreign_fix.fixes_of_job(
            target, history, diagnosis, judge.rules_of(self._reach.settings), self._reach.io
        )
        job = target.job
        if job is None or job.state != "RUNNING":
            return found, ()
        return found, lost_work.lost_of_job(self._reach.io, job.job_id, None, self._reach.settings)

    def relaunch(self, offer: RelaunchOffer, parent_choice: str) -> Submitted:
        choice = relaunch.ParentChoice(parent_choice)
        return relaunch.relaunch(
            offer.plan, offer.parent, choice, self._reach.settings, self._reach.env, self._reach.io
        )


@dataclass(frozen=True, slots=True)
class LiveJobActions:
    """Actions on jobs, by Slurm's commands, or by signals on the local backend."""

    _reach: Reach

    def plan_action(self, verb: Verb, targets: Sequence[str], time_limit_s: int | None = None) -> JobAction:
        """The exact commands that `perform` will run, to be shown first, and the jobs that are left out."""
        if verb in (Verb.ATTACH, Verb.RESUME):
            (target,) = targets
            plan = attach.plan_attach if verb is Verb.ATTACH else resume.plan_resume
            return plan(target, self._reach.settings, self._reach.env, self._reach.io)
        return job_actions.plan_action(
            verb, targets, self._reach.settings, self._reach.env, self._reach.io, time_limit_s
        )

    def plan_resubmit(self, target: str) -> LaunchRequest | JobAction:
        """The request that launches a run again, or the action that submits a job again that coach did not
        launch; of an array with failed tasks, these."""
        reach = self._reach
        return resubmit.plan_resubmit(target, reach.settings, reach.env, reach.io, only_failed=None)

    def perform(self, action: JobAction) -> Outcome:
        self._reach.charge(1 + len(action.job_ids))
        if action.verb is Verb.RESUBMIT:
            return resubmit.perform_resubmit(action, self._reach.env)
        if action.verb is Verb.RESUME:
            done = resume.perform_resume(action, self._reach.settings, self._reach.env, self._reach.io)
            return Outcome(action.verb, action.job_ids, notes=(f"its job is {done.job_id}", *done.notes))
        return job_actions.perform(action, self._reach.env, self._reach.io.now())

    def attach(self, action: JobAction, target: str) -> tuple[StreamSource, ...]:
        """The sources by which `Session.attach` follows `target`. It starts nothing."""
        attach.begin_attach(self._reach.settings)
        self._reach.charge(sum(cost_of(step.argv) for step in action.steps))
        return attach.streams(action, target, self._reach.env)

    def copy(self, text: str) -> bool:
        """Put text into tmux's buffer. Returns False if coach does not run in tmux."""
        return tmux.load_tmux_buffer(text, self._reach.env)

    def open_pager(self, file: str) -> int:
        """Give the terminal to the user's pager. Returns its exit status.

        Raises UserError if there is no pager.
        """
        return job_actions.open_pager(file, self._reach.env)

    def open_shell(self, action: JobAction) -> int:
        """Give the terminal to a shell. Returns its exit status. Called while the screens have released the
        terminal."""
        self._reach.charge(sum(cost_of(step.argv) for step in action.steps))
        return job_actions.open_shell(action, self._reach.env)


@dataclass(frozen=True, slots=True)
class LiveNotices:
    """Notices, by tmux and by the user's own command."""

    _reach: Reach

    def show_in_tmux(self, text: str) -> bool:
        """Show a text in tmux's status line. Returns False if coach does not run in tmux."""
        return tmux.show_tmux_message(text, self._reach.env)

    def run_command(self, notice: Notice) -> None:
        """Run the command of the user's config and wait for it. Raises UserError if it fails."""
        words, facts = self._reach.settings.notices.command, notices.notice_facts(notice)
        why = user_command.run_user_command(words, facts, self._reach.env, NOTICE_TIMEOUT_S)
        if why is not None:
            raise UserError(f"notify.command: {why}")


@dataclass(frozen=True, slots=True)
class LiveStacks:
    """Stacks of ranks, by a step inside the job, or by a process beside a run on this machine."""

    _reach: Reach

    def plan_stacks(self, target: str) -> StacksPlan:
        """The exact command that `take_stacks` will run."""
        return stacks.plan_stacks(target, self._reach.settings, self._reach.env, self._reach.io)

    def take_stacks(self, plan: StacksPlan) -> Stacks:
        """The stack of each rank now. Takes 15 seconds at most."""
        self._reach.charge(cost_of(plan.argv))
        return stacks.take_stacks(plan, self._reach.settings, self._reach.env)


class LiveLogs:
    """Windows of logs. It keeps an index of the counted lines of each file."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._files: dict[tuple[str, int | None], LogWindows] = {}

    def read_log(
        self,
        look: LogLook,
        owner: int | None,
        counted: Mapping[str, tuple[int, int]],
        heed: Callable[[int, int], bool],
    ) -> LogWindow | None:
        """A window of a log that is opened for `owner`, or None if it was stopped. `counted` gives, for each
        file, a size in bytes and the number of lines up to there. `heed` is called with the bytes read and
        the bytes in all; if it returns False, reading stops."""
        windows: list[LogWindow] = []
        io = OwnerIo(self._reach.io, lambda: owner)
        for file in look.files:
            if (file, owner) not in self._files:
                self._files[file, owner] = log_windows.LogWindows(io, Path(file))
            known = self._files[file, owner]
            if file in counted:
                known.know_end(*counted[file])
            try:
                windows.append(known.look(look, heed))
            except log_windows.Stopped:
                return None
        return windows[0] if len(windows) == 1 else log_windows.both_by_time(*windows)


@dataclass(frozen=True, slots=True)
class LiveDrills:
    """The drills that this cluster or machine can run."""

    _reach: Reach
    _backend: str

    def drills(self) -> tuple[tuple[DrillEntry, ...], tuple[UserError, ...]]:
        """All drills, and an error for each one that cannot be read."""
        return drills.known_drills(self._reach.settings, self._reach.io, self._backend)

    def judgement(self, run_id: str) -> Judgement:
        """The learner's progress in a drill's run."""
        return drill_answer.read_judgement(run_id, self._reach.settings, self._reach.io, user_name())

    def answer_drill(self, run_id: str, cause: str | None) -> Judgement:
        """Judge and record the cause that the learner named; None: the learner gave up."""
        return drill_answer.answer_drill(run_id, cause, self._reach.settings, self._reach.io, user_name())


class LiveQuestions:
    """Answers to questions. A new question needs one line in the table, and a function."""

    def __init__(self, reach: Reach, backend: str, place: str) -> None:
        self._reach = reach
        self._backend = backend
        self._place = place
        self._open: dict[Question, SystemIo] = {}
        self.table: Mapping[Question, Callable[[Io], Any]] = {
            Question.PLACE_IN_QUEUE: self._place_in_queue,
            Question.RESERVATIONS: self._reservations,
            Question.ALLOCATIONS: self._allocations,
            Question.STEP_USE: self._step_use,
            Question.PAST_JOBS: self._past_jobs,
            Question.REMEMBERED: self._remembered,
            Question.COHORT: self._cohort,
        }

    def answer(self, question: Question) -> Any:
        """The answer, of the type that `Question` names for each member."""
        io = self._open[question] = self._reach.asking_io()
        return self.table[question](self._reach.spare(io))

    def stop(self, question: Question) -> None:
        """End the commands of a question whose answer nobody waits for. Returns at once."""
        if question in self._open:
            self._open[question].stop()

    def _place_in_queue(self, io: Io) -> PlaceInQueue:
        return place_in_queue.read_place(io, user_name())

    def _reservations(self, io: Io) -> Part[tuple[Reservation, ...]]:
        part = place_in_queue.read_reservations(io, user_name())
        if part.value is None:
            raise UserError(part.error or "Slurm does not answer")
        return part

    def _allocations(self, io: Io) -> tuple[GpuAllocation, ...]:
        answer = client.Client(io).ask(start_times.ALLOCATIONS_QUERY)
        if answer.error is not None:
            raise UserError(answer.error)
        return start_times.parse_allocations(answer.text)[0]

    def _step_use(self, io: Io) -> StepUses:
        return step_use.read_step_use(io, user_name())

    def _cohort(self, io: Io) -> Cohort:
        return cohort.read_cohort(self._reach.settings)

    def _past_jobs(self, io: Io) -> PastJobs:
        return ended_jobs.read_past_jobs(
            self._reach.settings,
            io,
            user_name(),
            self._backend,
            past_s=PAST_S,
            limit=MAX_PAST_JOBS,
        )

    def _remembered(self, io: Io) -> PastJobs:
        settings, now_s = self._reach.settings, io.now()
        return remembered.remembered(settings, user_name(), now_s, PAST_S, MAX_PAST_JOBS)

    def explain_rule(self, code: str) -> str:
        """The page of a rule or a topic, as `coach explain` prints it. Raises UserError."""
        if (topic := topics.topic_of(code)) is not None:
            return topic.text()
        settings = self._reach.settings
        page = documentation.rule_page(
            registry.find(code), judge.thresholds_of(settings, code), code in settings.muted_rules
        )
        return documentation.page_text(page)

    def rule_titles(self) -> tuple[RuleTitle, ...]:
        """All rules, by code; then all topics."""
        rules = (
            RuleTitle(rule.code, f"{rule.name} · {documentation.rule_summary(rule)}")
            for rule in registry.rule_classes()
        )
        return (*rules, *(RuleTitle(each.name, each.title, "topic") for each in topics.find_topics()))

    def examine(self) -> Report:
        """The doctor's report on this cluster or machine."""
        settings = doctor.with_backend(self._reach.settings, self._place)
        # The doctor does not use the screens' budget: it would wait past its timeout and blame Slurm.
        return doctor.examine(
            settings,
            self._reach.env,
            self._reach.io,
            terminal.read_terminal(terminal.started_environment(self._reach.env)),
        )


class Ports:
    """All ports of the controllers, one for each theme: the controller of launches is not given the drills. A
    method may take long or raise UserError, so it is called in a worker's thread."""

    def __init__(self, reach: Reach, backend: str, place: str) -> None:
        """`backend` is the backend on the screens; `place` is a backend or `auto`, which the doctor
        examines."""
        self.recipes = LiveRecipes(reach)
        self.launches = LiveLaunches(reach)
        self.fixes = LiveFixes(reach)
        self.job_actions = LiveJobActions(reach)
        self.stacks = LiveStacks(reach)
        self.logs = LiveLogs(reach)
        self.drills = LiveDrills(reach, backend)
        self.questions = LiveQuestions(reach, backend, place)
        self.launchables = LiveLaunchables(reach)
        self.notices = LiveNotices(reach)
