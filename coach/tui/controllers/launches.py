"""Launches: the recipes and their keys, the rows of New launch, the edited plan, its submission. Fixes: the
plan of a child run, or a diff of the user's own script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis, Finding, Fix
from coach.model.launching.launch import LaunchRequest, Plan, Submitted
from coach.model.snapshot import TargetSnapshot
from coach.tui import messages
from coach.tui.bases.screen import CoachScreen
from coach.tui.controllers.handlers import Handlers
from coach.tui.keys import launch_keys
from coach.tui.ports import RecipeKey
from coach.tui.screen_specs import Kind
from coach.tui.stage import Stage

if TYPE_CHECKING:
    from coach.launch.resubmission import Resubmission
    from coach.model.slurm.cluster import Job
    from coach.model.training.run import Run
    from coach.tui.bases.decision import DecisionScreen
    from coach.tui.live_ports import LiveFixes, LiveLaunchables, LiveLaunches, LiveRecipes
    from coach.tui.screens.fix import FixScreen
    from coach.tui.screens.foreign_fix import ForeignFixScreen
    from coach.tui.screens.new_launch import NewLaunchScreen
    from coach.tui.screens.plan import PlanScreen
    from coach.tui.screens.recipes import RecipesScreen
    from coach.workflows.launching.foreign_fix import ForeignFixes


class Launches:
    """Handles the requests for recipes, plans and submissions. It keeps the recipes once they have been
    read."""

    def __init__(self, stage: Stage, recipes: LiveRecipes, launches: LiveLaunches, backend: str) -> None:
        """`backend` is the backend of launches from the screens."""
        self._stage = stage
        self._recipe_port = recipes
        self._port = launches
        self._backend = backend
        self._recipes: tuple[RecipeKey, ...] | None = None

    @property
    def handlers(self) -> Handlers:
        return {
            messages.RecipesWanted: self._read_recipes,
            messages.ScriptRequested: self._make_script,
            messages.PlanOpened: self._open_filled_plan,
            messages.LadderOpened: self._open_ladder,
            messages.PlanRequested: self._plan_again,
            messages.SubmitRequested: self._submit,
        }

    @property
    def recipes(self) -> tuple[RecipeKey, ...]:
        """The recipes that can be launched; empty until they have been read."""
        return self._recipes or ()

    def load_recipes(self) -> None:
        """Read the recipes and their keys, in a thread."""
        self._stage.do(self._recipe_port.recipe_keys, self._set_recipes, self._stage.note)

    def _set_recipes(self, recipes: tuple[RecipeKey, ...]) -> None:
        self._recipes = recipes
        self._stage.context.launch_keys = launch_keys(recipes)
        self._stage.redraw()

    def press(self, key: str) -> None:
        """Open the plan of the recipe that this key launches."""
        top, context = self._stage.top, self._stage.context
        if top is None:
            return
        if Kind.SHOW not in top.spec.kinds:
            top.note(f"{key} launches a recipe: leave this first")
            return
        recipe = next((r for r in self.recipes if r.key == key), None)
        if self._recipes is not None and recipe is None:
            top.note(f"no recipe has the key {key}: [keys] in config.toml gives it one")
            return
        if context.launch_keys and top.is_off(f"launch_{key}"):
            return
        if not context.mode.is_live:
            return
        if context.typed_on.is_on:
            top.note(f"{key} came right after a key that did nothing: to launch, press {key} again")
            return

        if recipe is not None:
            self.launch(recipe)
            return

        def request() -> LaunchRequest:
            name = next((r.name for r in self._recipe_port.recipe_keys() if r.key == key), None)
            if name is None:
                raise UserError(f"no recipe has the key {key}")
            return LaunchRequest(name, self._backend)

        self.open_plan("", request)

    def launch(self, recipe: RecipeKey) -> None:
        """Open the plan of this recipe."""
        if not self._stage.may_launch():
            return
        request = LaunchRequest(recipe.name, self._backend)
        self.open_plan(recipe.word, lambda: request)

    def open_plan(self, name: str, make_request: Callable[[], LaunchRequest]) -> None:
        """Open a plan. If none can be made, the user can still edit the request."""
        screen: PlanScreen = self._stage.open("plan", f"launch {name}".strip())

        def work() -> tuple[Plan | UserError, LaunchRequest]:
            request = make_request()
            try:
                return self._port.prepare(request), request
            except UserError as error:
                return error, request

        self._stage.ask(screen, work, lambda made: screen.set_first(*made), what=f"planning {name}".strip())

    def _open_filled_plan(self, message: messages.PlanOpened) -> None:
        if self._stage.is_overtaken(message):
            return
        if not self._stage.may_launch():
            return
        request = replace(message.request, backend=self._backend)
        self.open_plan(message.title, lambda: request)

    def _open_ladder(self, message: messages.LadderOpened) -> None:
        if not self._stage.is_overtaken(message) and self._stage.may_launch():
            self.open_plan("ladder", lambda: self._recipe_port.ladder_request(message.recipe, self._backend))

    def _read_recipes(self, message: messages.RecipesWanted) -> None:
        screen: RecipesScreen | None = self._stage.asker(message)
        if screen is None:
            return
        self._stage.do(
            self._recipe_port.recipe_pages,
            lambda found: screen.set_pages(*found) if screen.is_attached else None,
            self._stage.note,
            "reading the recipes",
        )

    def _make_script(self, message: messages.ScriptRequested) -> None:
        if self._stage.is_overtaken(message):
            return
        screen: RecipesScreen = self._stage.asker(message)
        request, edit = replace(message.request, backend=self._backend), message.edit
        self._stage.do(
            lambda: self._port.preview(request) if screen.edit == edit else ((), ""),
            lambda made: screen.set_script(*made, edit) if screen.is_attached else None,
            lambda error: screen.refuse(error, edit) if screen.is_attached else None,
            "making the script",
        )

    def _plan_again(self, message: messages.PlanRequested) -> None:
        if self._stage.is_overtaken(message):
            return
        screen: PlanScreen = self._stage.asker(message)
        run_id = screen.plan.run_id if screen.plan is not None else None
        request, edit = message.request, message.edit
        self._stage.ask(
            screen,
            lambda: self._port.prepare(request, run_id),
            lambda plan: screen.set_plan(plan, request, edit),
            lambda: screen.edit == edit,
            "making the plan again",
        )

    def _submit(self, message: messages.SubmitRequested) -> None:
        screen: DecisionScreen | None = self._stage.asker(message)
        if screen is not None:
            self._stage.change(
                screen,
                lambda: self._port.submit(message.plan),
                lambda done: self._show_submitted(screen, message.plan, done),
                "submitting",
            )

    def _show_submitted(self, screen: CoachScreen, plan: Plan, submitted: Submitted) -> None:
        """Open the launched run, of several the first, and name the key that shows them all."""
        if plan.others:
            key = self._stage.context.label("compare")
            told = f"{1 + len(plan.others)} runs launched, this is the first: {key} shows all"
            submitted = replace(submitted, notes=(*submitted.notes, told))
        self.show_launched(screen, submitted)

    def show_launched(self, screen: CoachScreen, submitted: Submitted) -> None:
        """Open the launched run, unless the user has opened another screen meanwhile."""
        self._stage.context.session.refresh_soon()
        if self._stage.close(screen):
            self._stage.open("job", submitted.run_id)
        if submitted.notes:
            self._stage.tell(" · ".join(submitted.notes))


OpenPlan = Callable[[str, Callable[[], LaunchRequest]], object]


class NewLaunches:
    """Searches the directory in a thread of its own, so that a large directory does not delay a launch."""

    def __init__(self, stage: Stage, port: LiveLaunchables, open_plan: OpenPlan, backend: str) -> None:
        """`backend` is the backend of launches from the screens."""
        self._stage = stage
        self._port = port
        self._open_plan = open_plan
        self._backend = backend

    @property
    def handlers(self) -> Handlers:
        return {messages.LaunchablesWanted: self._find, messages.LaunchableOpened: self._open}

    def _find(self, message: messages.LaunchablesWanted) -> None:
        screen: NewLaunchScreen | None = self._stage.asker(message)
        if screen is None:
            return
        self._stage.do_aside(
            self._port.launchables,
            lambda found: screen.set_found(found) if screen.is_attached else None,
            self._stage.note,
            "looking for programs",
        )

    def _open(self, message: messages.LaunchableOpened) -> None:
        if self._stage.is_overtaken(message):
            return
        if not self._stage.may_launch():
            return

        def show(request: LaunchRequest) -> None:
            if not self._stage.is_overtaken(message):
                asked = replace(request, backend=self._backend)
                self._open_plan(asked.recipe.rpartition("/")[2].rpartition(":")[2], lambda: asked)

        def refuse(error: UserError) -> None:
            """Show the error on the screen of the plan, which has room for all of it."""

            def no_request() -> LaunchRequest:
                raise error

            if not self._stage.is_overtaken(message):
                self._open_plan(message.row.name, no_request)

        self._stage.do(lambda: self._port.request_of(message.row), show, refuse, "reading the program")


class Fixes:
    """Handles the requests for fixes. Their number counts the fixes of all findings of a run, those of the
    primary finding first."""

    def __init__(
        self, stage: Stage, fixes: LiveFixes, show_launched: Callable[[CoachScreen, Submitted], object]
    ) -> None:
        self._stage = stage
        self._port = fixes
        self._show_launched = show_launched

    @property
    def handlers(self) -> Handlers:
        return {messages.FixRequested: self._show, messages.RelaunchRequested: self._relaunch}

    def _show(self, message: messages.FixRequested) -> None:
        if self._stage.is_overtaken(message):
            return
        context = self._stage.context
        run, diagnosis = context.run(message.run_id), context.diagnoses.get(message.run_id)
        findings = diagnosis.findings if diagnosis is not None else ()
        fixes = [(finding, fix) for finding in findings for fix in finding.launch_fixes]
        if run is None:
            self._show_foreign(message.run_id, diagnosis, message.job)
        elif fixes:
            self._show_offer(message, run, fixes)
        elif any(finding.fixes for finding in findings):
            self._stage.open("finding", message.run_id)
        else:
            self._stage.note(UserError("this run has no fix any more"))

    def _show_offer(
        self, message: messages.FixRequested, run: Run, fixes: Sequence[tuple[Finding, Fix]]
    ) -> None:
        context = self._stage.context
        index = message.index % len(fixes)
        screen: FixScreen = (
            self._stage.asker(message) if message.stays else self._stage.open("fix", message.run_id, index)
        )
        screen.index = index
        history = context.session.history(message.run_id)
        present = replace(run, state=context.state_of(run))
        target = context.snapshot.targets.get(message.run_id) or TargetSnapshot(message.run_id, None)
        finding, fix = fixes[index]
        self._stage.ask(
            screen,
            lambda: self._port.offer_fix(present, finding, fix, target, history, message.is_trial),
            screen.set_offer,
            what="working out the fix",
        )

    def _show_foreign(self, job_id: str, diagnosis: Diagnosis | None, known: Job | None) -> None:
        """Show the form that submits again a job that coach did not launch, with the changes that a finding
        suggests. `known` is its row, also of a job that has left the queue."""
        context = self._stage.context
        target, history = context.snapshot.targets.get(job_id), context.session.history(job_id)
        known = known or (target.job if target is not None else None)
        judged = replace(target, job=target.job or known) if target is not None else None
        screen: ForeignFixScreen = self._stage.open("foreign_fix", job_id)

        def work() -> tuple[Resubmission | UserError, ForeignFixes | None, tuple[str, ...]]:
            again: Resubmission | UserError
            try:
                again = self._port.find_again(job_id)
            except UserError as error:
                again = error
            if judged is None or judged.job is None or diagnosis is None or not diagnosis.findings:
                return again, None, ()
            return again, *self._port.foreign_fixes(judged, history, diagnosis)

        self._stage.ask(screen, work, lambda made: screen.set_fixes(*made), what="working out the fix")

    def _relaunch(self, message: messages.RelaunchRequested) -> None:
        screen: DecisionScreen | None = self._stage.asker(message)
        if screen is not None:
            self._stage.change(
                screen,
                lambda: self._port.relaunch(message.offer, message.parent_choice),
                lambda done: self._show_launched(screen, done),
                "relaunching",
            )
