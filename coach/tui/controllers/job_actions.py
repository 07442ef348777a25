"""Actions on jobs: opens the question, runs the confirmed action, shows the result. Also the stacks of ranks,
and windows of logs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from textual.app import SuspendNotSupported

from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.model.slurm.job_action import JobAction, Verb
from coach.model.training.log_window import LogWindow
from coach.node.secret_words import mask_text
from coach.render.markdown import diagnosis_markdown
from coach.tui import messages
from coach.tui.controllers.handlers import Handlers
from coach.tui.stage import READ_ONLY, Stage

if TYPE_CHECKING:
    from coach.sources.slurm.overlap_step import StreamSource
    from coach.tui.bases.decision import DecisionScreen
    from coach.tui.live_ports import LiveJobActions, LiveLogs, LiveStacks
    from coach.tui.screens.confirm import ConfirmScreen
    from coach.tui.screens.log import LogScreen
    from coach.tui.screens.stacks import StacksScreen

OpenPlan = Callable[[str, Callable[[], LaunchRequest]], object]


class JobActions:
    """Handles the requests for actions on jobs. Only this class lends the terminal: to a shell in an
    allocation, or to a pager."""

    def __init__(self, stage: Stage, job_actions: LiveJobActions, open_plan: OpenPlan) -> None:
        """`open_plan` shows the plan of a run that the user launches again."""
        self._stage = stage
        self._port = job_actions
        self._open_plan = open_plan

    @property
    def handlers(self) -> Handlers:
        return {
            messages.ActionRequested: self._show_question,
            messages.LimitEntered: self._plan_limit,
            messages.ActionConfirmed: self._perform,
            messages.PagerRequested: self._show_in_pager,
            messages.CopyRequested: self._copy,
        }

    def _show_question(self, message: messages.ActionRequested) -> None:
        if self._stage.is_overtaken(message):
            return
        screen: ConfirmScreen = self._stage.open("confirm", message.verb, message.targets, message.label)
        if message.verb is Verb.RESUBMIT:
            (target,) = message.targets
            work = partial(self._port.plan_resubmit, target)
            self._stage.ask(
                screen, work, lambda planned: self._show_again(screen, planned), what="looking for its script"
            )
        elif message.verb is not Verb.TIMELIMIT:
            work_ = partial(self._port.plan_action, message.verb, message.targets)
            self._stage.ask(screen, work_, screen.set_action, what="preparing the command")

    def _plan_limit(self, message: messages.LimitEntered) -> None:
        screen: ConfirmScreen | None = self._stage.asker(message)
        if screen is None or (entered := screen.entered) is None:
            return
        work = partial(self._port.plan_action, Verb.TIMELIMIT, message.targets, message.time_limit_s)
        self._stage.ask(
            screen, work, screen.set_action, lambda: screen.entered == entered, "preparing the command"
        )

    def _show_again(self, screen: ConfirmScreen, planned: LaunchRequest | JobAction) -> None:
        """Show the plan of a run that is launched again; for another job, its sbatch command."""
        if isinstance(planned, JobAction):
            screen.set_action(planned)
        elif self._stage.close(screen):
            self._open_plan(planned.recipe, lambda: planned)

    def _perform(self, message: messages.ActionConfirmed) -> None:
        screen: DecisionScreen | None = self._stage.asker(message)
        action = message.action
        if screen is None:
            return
        if action.verb is Verb.SHELL and self._stage.context.mode.is_live:
            self._open_shell(screen, action)
        elif action.verb is Verb.ATTACH:
            self._begin_measuring(screen, action)
        else:
            self._stage.change(
                screen,
                lambda: self._port.perform(action),
                lambda outcome: self._tell(screen, outcome.words),
                f"{action.verb}",
            )

    def _begin_measuring(self, screen: DecisionScreen, action: JobAction) -> None:
        context, (job_id, *_) = self._stage.context, action.job_ids
        run = context.run_of_job(job_id)
        target = run.run_id if run is not None else job_id

        def begin(streams: tuple[StreamSource, ...]) -> None:
            context.session.attach(target, streams)
            self._tell(screen, f"a step in job {job_id} measures it, until it ends or coach is left")

        self._stage.change(screen, lambda: self._port.attach(action, target), begin, "beginning to measure")

    def _open_shell(self, screen: DecisionScreen, action: JobAction) -> None:
        """Give the terminal to a shell. Until the shell ends, nothing is drawn and no key is read."""
        try:
            with self._stage.lent_terminal():
                status = self._port.open_shell(action)
        except UserError as error:
            self._tell(screen, error.message)
        except SuspendNotSupported:
            self._tell(screen, "this terminal cannot be lent to a shell; `coach shell` opens one")
        else:
            self._tell(screen, f"the shell was left (exit status {status})")

    def _copy(self, message: messages.CopyRequested) -> None:
        """Copy into tmux's buffer, else by the terminal (OSC 52), which does not confirm the copy. Users send
        findings to other people, so secrets in the quoted lines are removed."""
        name, diagnosis = message.name, message.diagnosis
        text = name if diagnosis is None else mask_text(diagnosis_markdown(diagnosis, name))
        what = name if diagnosis is None else f"the findings of {name}"

        def tell(is_in_tmux: bool) -> None:
            if is_in_tmux:
                self._stage.tell(f"copied {what} into tmux's buffer")
            else:
                self._stage.copy_by_terminal(text)
                self._stage.tell(f"copied {what}, if this terminal allows it (OSC 52)")

        self._stage.do_aside(partial(self._port.copy, text), tell, self._stage.note)

    def _show_in_pager(self, message: messages.PagerRequested) -> None:
        """Give the terminal to the pager until it ends."""
        try:
            with self._stage.lent_terminal():
                self._port.open_pager(message.file)
        except UserError as error:
            self._stage.note(error)
        except SuspendNotSupported:
            self._stage.note(UserError("this terminal cannot be lent to a pager"))

    def _tell(self, screen: DecisionScreen, words: str) -> None:
        self._stage.context.session.refresh_soon()
        self._stage.close(screen)
        self._stage.tell(words)


_NOTE_BYTES = 32 << 20
"""Progress is shown each time this many more bytes were read."""


class Logs:
    """Handles the requests of the Log screen."""

    def __init__(self, stage: Stage, logs: LiveLogs) -> None:
        self._stage = stage
        self._port = logs

    @property
    def handlers(self) -> Handlers:
        return {messages.LogWanted: self._read}

    def _read(self, message: messages.LogWanted) -> None:
        screen: LogScreen | None = self._stage.asker(message)
        if screen is None:
            return
        look, noted = message.look, [0]

        def heed(done: int, total: int) -> bool:
            if done - noted[0] >= _NOTE_BYTES:
                noted[0] = done
                self._stage.deliver(partial(message.on_progress, look, done, total))
            return screen.is_attached and message.is_wanted()

        def show(window: LogWindow | None) -> None:
            if screen.is_attached and window is not None:
                screen.set_window(look, window)

        def refuse(error: UserError) -> None:
            if screen.is_attached:
                screen.refuse(look, error)

        read = partial(self._port.read_log, look, message.owner, message.counted, heed)
        self._stage.do_aside(read, show, refuse)


T = TypeVar("T")


class RankStacks:
    """Handles the requests of the Stacks screen."""

    def __init__(self, stage: Stage, stacks: LiveStacks) -> None:
        self._stage = stage
        self._port = stacks

    @property
    def handlers(self) -> Handlers:
        return {messages.StacksWanted: self._plan, messages.StacksRequested: self._take}

    def _plan(self, message: messages.StacksWanted) -> None:
        screen: StacksScreen | None = self._stage.asker(message)
        if screen is not None:
            self._answer(screen, partial(self._port.plan_stacks, message.target), screen.set_plan)

    def _take(self, message: messages.StacksRequested) -> None:
        screen: StacksScreen | None = self._stage.asker(message)
        if screen is None:
            return
        if self._stage.context.mode.is_live:
            self._answer(screen, partial(self._port.take_stacks, message.plan), screen.set_stacks)
        else:
            screen.refuse(READ_ONLY)

    def _answer(self, screen: StacksScreen, work: Callable[[], T], show: Callable[[T], object]) -> None:
        self._stage.ask(screen, work, show, what="taking the stacks of all ranks", is_aside=True)
