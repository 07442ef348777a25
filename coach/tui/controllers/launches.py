"""What happens when a screen asks: other screens open, workflows run at the desk, their answers come back to whoever asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from textual.app import App, ScreenStackError

from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis
from coach.model.launching.launch import LaunchRequest, Plan, Submitted
from coach.model.snapshot import Snapshot, TargetSnapshot
from coach.tui import messages
from coach.tui.bases.decision import DecisionScreen
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.keys.table import launch_keys
from coach.tui.mode import Mode
from coach.tui.ports import RecipeKey, RelaunchOffer
from coach.tui.screen_specs import Kind
from coach.tui.wiring import Opening
from coach.tui.worker import Worker

T = TypeVar("T")
S = TypeVar("S", bound=DecisionScreen)
READ_ONLY = UserError("coach was opened read-only, or on a recording: nothing can be launched or changed")


class ActionApp(App[None]):
    """The part of the app that answers messages. Screens are imported when they are first opened."""

    def __init__(self, opening: Opening, clock: Callable[[], float]) -> None:
        super().__init__()
        self.launcher = opening.launcher
        self.backend = opening.backend
        self.context = Context(
            session=opening.session,
            mode=opening.mode,
            user=opening.user,
            place=opening.place,
            clock=clock,
            snapshot=Snapshot(opening.session.snapshot.now_s),
            snapshot_time_s=0.0,
        )
        self._view_store = opening.views
        if opening.views is not None:
            self.context.views, self.context.views_problem = opening.views.read()
        self.desk = Worker(lambda callback: self.post_message(messages.Done(callback)))
        self._recipes: tuple[RecipeKey, ...] | None = None
        self._standing = opening.standing
        self.note_standing()

    def note_standing(self) -> None:
        """Whether anything may be changed, as the settings in force have it."""
        if self._standing is not None:
            self.context.mode, self.context.why_readonly = self._standing()

    def on_views_changed(self) -> None:
        store, views = self._view_store, dict(self.context.views)
        if store is not None and self.context.mode is Mode.LIVE:
            self.desk.do(lambda: store.keep(views), lambda _: None, self._say_unkept)

    def _say_unkept(self, error: UserError) -> None:
        if self.top is not None:
            self.top.note(error.message)

    async def on_done(self, message: messages.Done) -> None:
        result = message.callback()
        if hasattr(result, "__await__"):
            await result

    @property
    def top(self) -> CoachScreen | None:
        """The screen on top, if it is one of ours."""
        try:
            screen = self.screen
        except ScreenStackError:  # the clock ticks and data arrive also while the last screen closes
            return None
        return screen if isinstance(screen, CoachScreen) else None

    def _is_overtaken(self, message: messages.ScreenAsked) -> bool:
        """Whether another screen has opened since the key was pressed: in one packet, `x⏎⏎⏎` asks once and opens nothing."""
        return message.asked_by is not self.screen

    def _asker(self, message: messages.ScreenAsked, kind: type[S]) -> S | None:
        """The screen that asked, whatever lies on top of it, as long as it stands."""
        screen = message.asked_by
        return screen if isinstance(screen, kind) and screen.is_attached else None

    def _leave(self, screen: CoachScreen) -> bool:
        """Close a screen that is done with: now if it is on top, which is returned, else when it is come back to."""
        if self.screen is screen:
            self.pop_screen()
            return True
        if isinstance(screen, DecisionScreen):
            screen.is_done = True
        return False

    @property
    def recipes(self) -> tuple[RecipeKey, ...]:
        """The recipes that can be launched; none before they have been read."""
        return self._recipes or ()

    def load_recipes(self) -> None:
        """Learn which keys launch what."""
        self.desk.do(self.launcher.recipe_keys, self._set_recipes, self._say)

    def _set_recipes(self, recipes: tuple[RecipeKey, ...]) -> None:
        self._recipes = recipes
        self.context.launch_keys = launch_keys(recipes)
        if self.top is not None:
            self.top.refresh_all()

    def _say(self, error: UserError) -> None:
        if self.top is not None:
            self.top.note(error.message)

    # Launch

    def action_launch(self, key: str) -> None:
        """Open the plan of the recipe of this key."""
        top = self.top
        if top is None or Kind.SHOW not in top.spec.kinds:
            return
        recipe = next((r for r in self._recipes or () if r.key == key), None)
        if self._recipes is not None and recipe is None:
            return
        if self.context.launch_keys and top.is_off(f"launch_{key}"):
            return
        if self.context.mode is not Mode.LIVE:
            return

        if recipe is not None:
            self.launch(recipe)
            return

        def request() -> LaunchRequest:
            name = next((r.name for r in self.launcher.recipe_keys() if r.key == key), None)
            if name is None:
                raise UserError(f"no recipe has the key {key}")
            return LaunchRequest(name, self.backend)

        self._open_plan("", request, None)

    def launch(self, recipe: RecipeKey) -> None:
        """Open the plan of this recipe."""
        if self.context.mode is not Mode.LIVE:
            self._say(READ_ONLY)
            return
        request = LaunchRequest(recipe.name, self.backend)
        self._open_plan(recipe.word, lambda: request, request)

    def _open_plan(
        self, name: str, make_request: Callable[[], LaunchRequest], draft: LaunchRequest | None
    ) -> None:
        """`draft` is what can be changed while no plan can be made."""
        from coach.tui.screens.plan import PlanScreen

        screen = PlanScreen(self.context, f"launch {name}".strip())
        if draft is not None:
            screen.draft(draft)
        self.push_screen(screen)

        def work() -> tuple[Plan, LaunchRequest]:
            request = make_request()
            return self.launcher.prepare(request), request

        self._ask(screen, work, lambda made: screen.set_plan(made[0], made[1], 0))

    def on_plan_opened(self, message: messages.PlanOpened) -> None:
        if self._is_overtaken(message):
            return
        if self.context.mode is not Mode.LIVE:
            self._say(READ_ONLY)
            return
        request = replace(message.request, backend=self.backend)
        self._open_plan(message.title, lambda: request, request)

    # Recipes

    def on_recipes_wanted(self, message: messages.RecipesWanted) -> None:
        from coach.tui.screens.recipes import RecipesScreen

        screen = message.asked_by
        if not isinstance(screen, RecipesScreen):
            return
        self.desk.do(
            self.launcher.recipe_pages,
            lambda found: screen.set_pages(*found) if screen.is_attached else None,
            self._say,
        )

    def on_script_requested(self, message: messages.ScriptRequested) -> None:
        from coach.tui.screens.recipes import RecipesScreen

        screen, edit = self.top, message.edit
        if not isinstance(screen, RecipesScreen):
            return
        request = replace(message.request, backend=self.backend)
        self.desk.do(
            lambda: self.launcher.preview(request) if screen.edit == edit else ((), ""),
            lambda made: screen.set_script(*made, edit) if screen.is_attached else None,
            lambda error: screen.refuse(error, edit) if screen.is_attached else None,
        )

    def on_plan_requested(self, message: messages.PlanRequested) -> None:
        from coach.tui.screens.plan import PlanScreen

        screen = self.top
        if not isinstance(screen, PlanScreen):
            return
        run_id = screen.plan.run_id if screen.plan is not None else None
        request, edit = message.request, message.edit
        self._ask(
            screen,
            lambda: self.launcher.prepare(request, run_id),
            lambda plan: screen.set_plan(plan, request, edit),
            lambda: screen.edit == edit,
        )

    def on_submit_requested(self, message: messages.SubmitRequested) -> None:
        if (screen := self._asker(message, DecisionScreen)) is not None:
            self._change(
                screen,
                lambda: self.launcher.submit(message.plan),
                lambda done: self._show_launched(screen, done),
            )

    def _show_launched(self, screen: CoachScreen, submitted: Submitted) -> None:
        self.context.session.refresh_soon()
        if self._leave(screen):
            self._open_run(submitted.run_id)
        if submitted.notes:
            self.call_after_refresh(self._say, UserError(" · ".join(submitted.notes)))

    # Fix and compare

    def on_fix_requested(self, message: messages.FixRequested) -> None:
        if self._is_overtaken(message):
            return
        from coach.tui.screens.fix import FixScreen

        run = self.context.run(message.run_id)
        diagnosis = self.context.diagnoses.get(message.run_id)
        fixes = [
            (finding, fix)
            for finding in (diagnosis.findings if diagnosis else ())
            for fix in finding.fixes
            if fix.changes
        ]
        if run is None and diagnosis is not None:
            self._show_foreign_fix(message.run_id, diagnosis)
            return
        if run is not None and not fixes and any(f.fixes for f in (diagnosis.findings if diagnosis else ())):
            self._open_findings(message.run_id)
            return
        if run is None or not fixes:
            self._say(UserError("this run has no fix any more"))
            return
        index = message.index % len(fixes)
        top = self.top
        screen = top if isinstance(top, FixScreen) else FixScreen(self.context, message.run_id, index)
        if screen is not top:
            self.push_screen(screen)
        screen.index = index
        history = self.context.session.history(message.run_id)
        present = replace(run, state=self.context.state_of(run))
        target = self.context.snapshot.targets.get(message.run_id) or TargetSnapshot(message.run_id, None)
        finding, fix = fixes[index]
        self._ask(
            screen,
            lambda: self.launcher.offer_fix(present, finding, fix, target, history, message.is_trial),
            screen.set_offer,
        )

    def _show_foreign_fix(self, job_id: str, diagnosis: Diagnosis) -> None:
        """Of a job that coach did not launch: its script, as it would have to be."""
        target = self.context.snapshot.targets.get(job_id)
        if target is None or target.job is None:
            self._say(UserError("only a job has a batch script that could be changed"))
            return
        from coach.tui.screens.foreign_fix import ForeignFixScreen

        history, screen = self.context.session.history(job_id), ForeignFixScreen(self.context, job_id)
        self.push_screen(screen)
        self.desk.do(
            lambda: self.launcher.foreign_fixes(target, history, diagnosis),
            lambda found: screen.set_fixes(*found) if screen.is_attached else None,
            lambda error: screen.refuse(error) if screen.is_attached else None,
        )

    def on_relaunch_requested(self, message: messages.RelaunchRequested) -> None:
        if (screen := self._asker(message, DecisionScreen)) is not None:
            offer: RelaunchOffer = message.offer
            self._change(
                screen,
                lambda: self.launcher.relaunch(offer, message.parent_choice),
                lambda done: self._show_launched(screen, done),
            )

    def on_compare_opened(self, message: messages.CompareOpened) -> None:
        if self._is_overtaken(message):
            return
        from coach.tui.screens.compare import CompareScreen

        self.push_screen(CompareScreen(self.context, message.before, message.after))

    def on_group_opened(self, message: messages.GroupOpened) -> None:
        if self._is_overtaken(message):
            return
        from coach.tui.screens.group import GroupScreen

        self.push_screen(GroupScreen(self.context, message.group_id))

    # Other screens

    def on_run_opened(self, message: messages.RunOpened) -> None:
        if self._is_overtaken(message):
            return
        self._open_run(message.run_id)

    def _open_run(self, run_id: str) -> None:
        from coach.tui.screens.run import RunScreen

        self.push_screen(RunScreen(self.context, run_id))

    def on_job_opened(self, message: messages.JobOpened) -> None:
        if self._is_overtaken(message):
            return
        from coach.tui.screens.job import JobScreen

        self.push_screen(JobScreen(self.context, message.job_id))

    def on_findings_opened(self, message: messages.FindingsOpened) -> None:
        if not self._is_overtaken(message):
            self._open_findings(message.run_id)

    def _open_findings(self, target: str) -> None:
        from coach.tui.screens.finding import FindingScreen

        self.push_screen(FindingScreen(self.context, target))

    def on_gpus_opened(self, message: messages.GpusOpened) -> None:
        if self._is_overtaken(message):
            return
        from coach.tui.screens.gpus import GpusScreen

        self.push_screen(GpusScreen(self.context, message.target, message.label))

    def on_report_wanted(self, message: messages.ReportWanted) -> None:
        """Look at this place: of this machine, not of where a recording was made."""
        from coach.tui.screens.doctor import DoctorScreen

        screen = message.asked_by
        if not isinstance(screen, DoctorScreen):
            return
        is_recorded = self.context.mode in (Mode.REPLAY, Mode.DEMO)
        backend = "auto" if is_recorded else self.backend
        looking = Worker(lambda callback: self.post_message(messages.Done(callback)))
        looking.do(
            lambda: self.launcher.examine(backend),
            lambda report: screen.set_report(report) if screen.is_attached else None,
            lambda error: screen.refuse(error) if screen.is_attached else None,
        )
        looking.finish(timeout_s=0.0)  # its thread ends with the answer

    # The desk

    def _ask(
        self,
        screen: DecisionScreen,
        work: Callable[[], T],
        show: Callable[[T], object],
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Work for a question: its answer is shown if the screen still stands."""
        self.desk.do(
            work,
            lambda result: show(result) if screen.is_attached and is_wanted() else None,
            lambda error: screen.refuse(error) if screen.is_attached and is_wanted() else None,
        )

    def _change(self, screen: DecisionScreen, work: Callable[[], T], on_done: Callable[[T], object]) -> None:
        """Work that changes something. What came of it is told, even when its screen was left meanwhile."""
        if self.context.mode is not Mode.LIVE:
            screen.refuse(READ_ONLY)
            return
        self.desk.do(
            work, on_done, lambda error: screen.refuse(error) if screen.is_attached else self._say(error)
        )
