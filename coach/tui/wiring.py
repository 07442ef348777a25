"""The real workflows behind the screens' protocols. Imported piece by piece, so that the first frame waits for nothing it does not need."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from coach.config import Settings
from coach.model.errors import UserError
from coach.model.judging.doctor_report import Report
from coach.model.judging.finding import Diagnosis, Finding, Fix
from coach.model.launching.launch import LaunchRequest, Plan, Submitted
from coach.model.slurm.job_action import JobAction, Outcome, Verb
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.model.training.stacks import Stacks, StacksPlan
from coach.tui.mode import Mode
from coach.tui.ports import Launcher, RecipeKey, RelaunchOffer, Session
from coach.workflows.watching.table_views import ViewStore

if TYPE_CHECKING:
    from coach.launch.resources import Site
    from coach.lookback.history import History
    from coach.model.slurm.cluster import GpuAllocation
    from coach.model.teaching.cohort import Cohort
    from coach.sources.slurm.overlap_step import StreamSource
    from coach.workflows.jobs.ended_jobs import PastJobs
    from coach.workflows.jobs.place_in_queue import PlaceInQueue
    from coach.workflows.launching.foreign_fix import ForeignFixes
    from coach.workflows.launching.recipes import Page
    from coach.workflows.teaching.drill_answer import Judgement
    from coach.workflows.teaching.drills import DrillEntry
    from coach.workflows.watching.step_use import StepUses

PAST_S = 7 * 86400.0
MAX_PAST_JOBS = 200
"""How far the history looks back, and how many jobs it shows."""
SITE_AGE_S = 60.0
"""How long what the cluster has is taken as known while a plan is changed."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What the app is opened with."""

    session: Session
    launcher: Launcher
    mode: Mode
    user: str
    place: str
    backend: str
    standing: Callable[[], tuple[Mode, str | None]] | None = None
    """The mode as the settings in force have it, and who says that nothing may be changed; None where it stays as it was opened."""
    views: ViewStore | None = None
    """Where the ways to look at the tables are kept; None where nothing is."""


def open_live(settings: Settings, backend: str, is_readonly: bool) -> Opening:
    """The cluster, or this machine."""
    from coach.sources.machine.user import user_name
    from coach.sources.rpc_budget import RpcBudget
    from coach.sources.slurm.cluster_name import cluster_name
    from coach.workflows.backend import resolve_backend
    from coach.workflows.watching.live_session import live_session

    env = dict(os.environ)
    resolved = resolve_backend(backend, env)
    name = cluster_name(env) if resolved == "slurm" else socket.gethostname()
    budget = RpcBudget()
    launcher = LiveLauncher(settings, env, budget.charge)
    return Opening(
        live_session(settings, resolved, env, launcher.use, budget),
        launcher,
        _standing(settings, is_readonly)[0],
        user_name(),
        f"{resolved} · {name}" if name else resolved,
        resolved,
        lambda: _standing(launcher.settings, is_readonly),
        ViewStore(settings.cache_dir),
    )


def _standing(settings: Settings, is_readonly: bool) -> tuple[Mode, str | None]:
    from coach.workflows.readonly import is_held_back, why_readonly

    if is_held_back(settings):
        return Mode.ROOT, None
    if is_readonly:
        return Mode.READONLY, None
    why = why_readonly(settings)
    return (Mode.LIVE, None) if why is None else (Mode.READONLY, f"coach is read-only: {why[0]}")


def open_recorded(settings: Settings, file: Path, mode: Mode) -> Opening:
    """A recording. Raises UserError when it is not one."""
    from coach.recorder import open_recording
    from coach.workflows.watching.recording import open_replay

    header = open_recording(file).header
    return Opening(
        open_replay(file, settings),
        LiveLauncher(settings, dict(os.environ)),
        mode,
        header.user,
        header.backend,
        header.backend,
    )


def demo_recording_path() -> Path:
    """The recording that comes with coach."""
    return Path(__file__).resolve().parent.parent / "demo" / "demo.coach"


class LiveLauncher:
    """Launches, cancels and relaunches for real. Called by the desk alone, one thing at a time."""

    def __init__(
        self,
        settings: Settings,
        env: Mapping[str, str],
        charge: Callable[[int], object] = lambda num_rpcs: None,
    ) -> None:
        """`charge` is told what everything costs that is asked of Slurm here; a person's own doing waits for nothing."""
        from coach.sources.io import SystemIo, scrubbed_environment

        def count(num_rpcs: int) -> bool:
            charge(num_rpcs)
            return True

        self._settings = settings
        self._env = env
        self._charge = charge
        self._io = SystemIo(
            scrubbed_environment(env), timeout_s=settings.slurm_timeout_s, before_command=count
        )
        self._site: tuple[float, Site] | None = None
        self._lost: dict[str, tuple[str, ...]] = {}
        """Recipe → launches of it whose answer was lost, as they were when the cluster was looked at."""
        self._previewed: tuple[tuple[str, str], Plan] | None = None
        """The plan of a recipe's defaults, for which key it was made."""

    @property
    def settings(self) -> Settings:
        """Those in force."""
        return self._settings

    def use(self, settings: Settings) -> None:
        """Go on by these settings. May be called from any thread."""
        self._settings = settings

    def recipe_keys(self) -> tuple[RecipeKey, ...]:
        from coach.workflows.launching.recipes import recipe_keys

        return tuple(RecipeKey(key, name, title) for key, name, title in recipe_keys(self._settings))

    def recipe_pages(self) -> tuple[tuple[Page, ...], tuple[UserError, ...]]:
        from coach.workflows.launching.recipes import pages

        return pages(self._settings)

    def drills(self, backend: str) -> tuple[tuple[DrillEntry, ...], tuple[UserError, ...]]:
        from coach.workflows.teaching.drills import known_drills

        return known_drills(self._settings, self._io, backend)

    def judgement(self, run_id: str) -> Judgement:
        from coach.sources.machine.user import user_name
        from coach.workflows.teaching.drill_answer import read_judgement

        return read_judgement(run_id, self._settings, self._io, user_name())

    def answer_drill(self, run_id: str, cause: str | None) -> Judgement:
        from coach.sources.machine.user import user_name
        from coach.workflows.teaching.drill_answer import answer_drill

        return answer_drill(run_id, cause, self._settings, self._io, user_name())

    def preview(self, request: LaunchRequest) -> tuple[tuple[str, ...], str]:
        from coach.workflows.launching.relaunch import script_diff

        key = (request.recipe, request.backend)
        if self._previewed is None or self._previewed[0] != key:
            self._previewed = (key, self.prepare(replace(request, set={})))
        base = self._previewed[1]
        plan = self.prepare(request, base.run_id)
        return script_diff(base.script, base.run_id, plan), plan.script

    def prepare(self, request: LaunchRequest, run_id: str | None = None) -> Plan:
        from coach.launch.recipe import get_recipe
        from coach.workflows.backend import resolve_backend
        from coach.workflows.launching.prepare import interrupted_launches, look_at_site, with_defaults
        from coach.workflows.launching.sweep import plan_all

        request = with_defaults(request, self._settings)
        get_recipe(request.recipe)
        backend = resolve_backend(request.backend, self._env, self._settings)
        now_s = time.monotonic()
        if (
            run_id is None
            or self._site is None
            or now_s - self._site[0] > SITE_AGE_S
            or self._site[1].backend != backend
        ):
            self._site = (now_s, look_at_site(backend, self._io))
            self._lost = {}
        site = self._site[1]
        if request.recipe not in self._lost:
            self._lost[request.recipe] = interrupted_launches(request, backend, self._settings, self._io)
        plan = plan_all(request, self._settings, self._env, self._io, site, self._io.now(), run_id)
        return replace(plan, warnings=(*self._lost[request.recipe], *plan.warnings))

    def submit(self, plan: Plan) -> Submitted:
        from coach.workflows.launching.refusals import remember_answers
        from coach.workflows.launching.sweep import submit

        submitted = submit(plan, self._settings, self._env, self._io)
        self._settings, notes = remember_answers(plan, self._settings)
        notes = tuple(line for each in submitted for line in each.notes) + notes
        return replace(submitted[0], notes=notes)

    def examine(self, backend: str) -> Report:
        from coach.sources.machine.terminal import read_terminal
        from coach.workflows.doctor import examine, with_backend

        settings = with_backend(self.settings, backend)
        return examine(settings, self._env, self._io, read_terminal(self._env))

    def place_in_queue(self) -> PlaceInQueue:
        from coach.sources.machine.user import user_name
        from coach.workflows.jobs.place_in_queue import read_place

        return read_place(self._io, user_name())

    def allocations(self) -> tuple[GpuAllocation, ...]:
        from coach.sources.slurm.client import Client
        from coach.sources.slurm.start_times import ALLOCATIONS_QUERY, parse_allocations

        answer = Client(self._io).ask(ALLOCATIONS_QUERY)
        if answer.error is not None:
            raise UserError(answer.error)
        return parse_allocations(answer.text)[0]

    def step_use(self) -> StepUses:
        from coach.sources.machine.user import user_name
        from coach.workflows.watching.step_use import read_step_use

        return read_step_use(self._io, user_name())

    def cohort(self) -> Cohort:
        from coach.workflows.teaching.cohort import read_cohort

        return read_cohort(self._settings)

    def past_jobs(self, backend: str) -> PastJobs:
        from coach.sources.machine.user import user_name
        from coach.workflows.jobs.ended_jobs import read_past_jobs

        return read_past_jobs(
            self._settings, self._io, user_name(), backend, past_s=PAST_S, limit=MAX_PAST_JOBS
        )

    def plan_action(self, verb: Verb, targets: Sequence[str], time_limit_s: int | None = None) -> JobAction:
        from coach.workflows.jobs.attach import plan_attach
        from coach.workflows.jobs.job_actions import plan_action

        if verb is Verb.ATTACH:
            (target,) = targets
            return plan_attach(target, self._settings, self._env, self._io)
        return plan_action(verb, targets, self._settings, self._env, self._io, time_limit_s)

    def plan_resubmit(self, target: str) -> LaunchRequest | JobAction:
        from coach.workflows.launching.resubmit import plan_resubmit

        return plan_resubmit(target, self._settings, self._env, self._io)

    def perform(self, action: JobAction) -> Outcome:
        from coach.workflows.jobs.job_actions import perform
        from coach.workflows.launching.resubmit import perform_resubmit

        self._charge(1 + len(action.job_ids))
        if action.verb is Verb.RESUBMIT:
            return perform_resubmit(action, self._env)
        return perform(action, self._env, self._io.now())

    def attach(self, action: JobAction, target: str) -> tuple[StreamSource, ...]:
        from coach.sources.rpc_budget import cost_of
        from coach.workflows.jobs.attach import begin_attach, streams

        begin_attach(action, self._settings)
        self._charge(sum(cost_of(step.argv) for step in action.steps))
        return streams(action, target, self._env)

    def plan_stacks(self, target: str) -> StacksPlan:
        from coach.workflows.jobs.stacks import plan_stacks

        return plan_stacks(target, self._settings, self._env, self._io)

    def take_stacks(self, plan: StacksPlan) -> Stacks:
        from coach.sources.rpc_budget import cost_of
        from coach.workflows.jobs.stacks import take_stacks

        self._charge(cost_of(plan.argv))
        return take_stacks(plan, self._settings, self._env)

    def open_shell(self, action: JobAction) -> int:
        from coach.sources.rpc_budget import cost_of
        from coach.workflows.jobs.job_actions import open_shell

        self._charge(sum(cost_of(step.argv) for step in action.steps))
        return open_shell(action, self._env)

    def offer_fix(
        self,
        run: Run,
        finding: Finding,
        fix: Fix,
        target: TargetSnapshot,
        history: History,
        is_trial: bool = False,
    ) -> RelaunchOffer:
        from coach.analysis.comparing.steady_state import newest_step
        from coach.analysis.comparing.two_runs import measure
        from coach.model.slurm.cluster import is_final
        from coach.workflows.jobs.lost_work import lost_of_run
        from coach.workflows.launching.fix_offer import TRIAL_STEPS, as_trial, refuse_further, steps_of_whole
        from coach.workflows.launching.relaunch import changes, request_for_fix, script_diff

        request = request_for_fix(run, fix, finding.rule)
        newest = newest_step(history)
        if is_trial:
            step_time = measure(target, history).step_time
            seconds = step_time.value if step_time is not None else None
            request = as_trial(request, TRIAL_STEPS, seconds, steps_of_whole(run, newest))
        plan = self.prepare(request)
        refuse_further(plan, run, self._settings, self._io)
        try:
            script = (Path(run.run_dir) / "job.sh").read_text(encoding="utf-8", errors="replace")
        except OSError:
            script = ""
        checkpoints = sorted(target.checkpoints, key=lambda checkpoint: checkpoint.step)
        return RelaunchOffer(
            run,
            finding,
            fix,
            plan,
            script_diff(script, run.run_id, plan),
            changes(run, plan),
            not is_final(run.state),
            newest.step if newest is not None else None,
            checkpoints[-1] if checkpoints else None,
            lost_of_run(self._io, run),
        )

    def foreign_fixes(
        self, target: TargetSnapshot, history: History, diagnosis: Diagnosis
    ) -> tuple[ForeignFixes, tuple[str, ...]]:
        from coach.workflows.jobs.lost_work import lost_of_job
        from coach.workflows.judging.lazy_engine import rules_of
        from coach.workflows.launching.foreign_fix import fixes_of_job

        found = fixes_of_job(target, history, diagnosis, rules_of(self._settings), self._io)
        job = target.job
        is_running = job is not None and job.state == "RUNNING"
        return found, lost_of_job(self._io, job.job_id, None) if job is not None and is_running else ()

    def relaunch(self, offer: RelaunchOffer, parent_choice: str) -> Submitted:
        from coach.workflows.launching.relaunch import ParentChoice, relaunch

        choice = ParentChoice(parent_choice)
        return relaunch(offer.plan, offer.parent, choice, self._settings, self._env, self._io)
