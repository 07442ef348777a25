"""What happens when something is to be done to jobs: the question opens, its answer is carried out, what came of it is told.

Apart from the other actions, because this is the one place where the screens let go of the terminal, for a shell in an allocation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from textual.app import SuspendNotSupported

from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.model.slurm.job_action import JobAction, Verb
from coach.tui import messages
from coach.tui.bases.decision import DecisionScreen
from coach.tui.bases.screen import CoachScreen
from coach.tui.controllers.launches import READ_ONLY, ActionApp
from coach.tui.mode import Mode
from coach.tui.worker import Worker

if TYPE_CHECKING:
    from coach.sources.slurm.overlap_step import StreamSource
    from coach.tui.screens.confirm import ConfirmScreen

T = TypeVar("T")


class ActingApp(ActionApp):
    """The part of the app that does something to jobs."""

    is_away = False
    """Whether a shell has the terminal: then nothing is drawn."""

    def on_action_requested(self, message: messages.ActionRequested) -> None:
        if self._is_overtaken(message):
            return
        from coach.tui.screens.confirm import ConfirmScreen

        screen = ConfirmScreen(self.context, message.verb, message.targets, message.label)
        self.push_screen(screen)
        if message.verb is Verb.RESUBMIT:
            (target,) = message.targets
            work = partial(self.launcher.plan_resubmit, target)
            self._ask(screen, work, lambda planned: self._show_again(screen, planned))
        elif message.verb is not Verb.TIMELIMIT:
            work_ = partial(self.launcher.plan_action, message.verb, message.targets)
            self._ask(screen, work_, screen.set_action)

    def on_limit_entered(self, message: messages.LimitEntered) -> None:
        from coach.tui.screens.confirm import ConfirmScreen

        screen = self._asker(message, ConfirmScreen)
        if screen is None or (entered := screen.entered) is None:
            return
        work = partial(self.launcher.plan_action, Verb.TIMELIMIT, message.targets, message.time_limit_s)
        self._ask(screen, work, screen.set_action, lambda: screen.entered == entered)

    def _show_again(self, screen: ConfirmScreen, planned: LaunchRequest | JobAction) -> None:
        """A run is launched again by its plan, another job by its sbatch."""
        if isinstance(planned, JobAction):
            screen.set_action(planned)
        elif self._leave(screen):
            self._open_plan(planned.recipe, lambda: planned, planned)

    def on_action_confirmed(self, message: messages.ActionConfirmed) -> None:
        screen, action = self._asker(message, DecisionScreen), message.action
        if screen is None:
            return
        if action.verb is Verb.SHELL and self.context.mode is Mode.LIVE:
            self._open_shell(screen, action)
            return
        if action.verb is Verb.ATTACH:
            self._begin_measuring(screen, action)
            return
        self._change(
            screen, lambda: self.launcher.perform(action), lambda outcome: self._tell(screen, outcome.words)
        )

    def _begin_measuring(self, screen: DecisionScreen, action: JobAction) -> None:
        (job_id, *_) = action.job_ids
        run = self.context.run_of_job(job_id)
        target = run.run_id if run is not None else job_id

        def begin(streams: tuple[StreamSource, ...]) -> None:
            self.context.session.attach(target, streams)
            self._tell(screen, f"a step in job {job_id} measures it, until it ends or coach is left")

        self._change(screen, lambda: self.launcher.attach(action, target), begin)

    def _open_shell(self, screen: CoachScreen, action: JobAction) -> None:
        """Nothing is drawn and no key is read until it is left: the terminal is the shell's."""
        self.is_away = True
        try:
            with self.suspend():
                status = self.launcher.open_shell(action)
        except UserError as error:
            self._tell(screen, error.message)
        except SuspendNotSupported:
            self._tell(screen, "this terminal cannot be lent to a shell; `coach shell` opens one")
        else:
            self._tell(screen, f"the shell was left (exit status {status})")
        finally:
            self.is_away = False

    def _tell(self, screen: CoachScreen, words: str) -> None:
        self.context.session.refresh_soon()
        self._leave(screen)
        self.call_after_refresh(self._say, UserError(words))

    def on_stacks_opened(self, message: messages.StacksOpened) -> None:
        if self._is_overtaken(message):
            return
        from coach.tui.screens.stacks import StacksScreen

        self.push_screen(StacksScreen(self.context, message.target, message.label))

    def on_stacks_wanted(self, message: messages.StacksWanted) -> None:
        from coach.tui.screens.stacks import StacksScreen

        if (screen := self._asker(message, StacksScreen)) is not None:
            self._aside(screen, partial(self.launcher.plan_stacks, message.target), screen.set_plan)

    def on_stacks_requested(self, message: messages.StacksRequested) -> None:
        from coach.tui.screens.stacks import StacksScreen

        screen = self._asker(message, StacksScreen)
        if screen is None:
            return
        if self.context.mode is Mode.LIVE:
            self._aside(screen, partial(self.launcher.take_stacks, message.plan), screen.set_stacks)
        else:
            screen.refuse(READ_ONLY)

    def _aside(self, screen: DecisionScreen, work: Callable[[], T], show: Callable[[T], object]) -> None:
        """Work that takes long and changes nothing: no launch waits for it."""
        desk = Worker(lambda callback: self.post_message(messages.Done(callback)))
        desk.do(
            work,
            lambda result: show(result) if screen.is_attached else None,
            lambda error: screen.refuse(error) if screen.is_attached else None,
        )
        desk.finish(timeout_s=0.0)  # its thread ends with the answer

    def on_log_opened(self, message: messages.LogOpened) -> None:
        if self._is_overtaken(message):
            return
        from coach.tui.screens.log import LogScreen

        self.push_screen(LogScreen(self.context, message.target, message.label))
