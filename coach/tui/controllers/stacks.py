"""Stacks of a job's ranks: the command that takes them, and the result. Taking them is slow and changes
nothing, so no launch waits for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from coach.tui import messages
from coach.tui.controllers.handlers import Handlers
from coach.tui.mode import Mode
from coach.tui.ports import StacksPort
from coach.tui.stage import READ_ONLY, Stage

if TYPE_CHECKING:
    from coach.tui.screens.stacks import StacksScreen

T = TypeVar("T")


class RankStacks:
    """Handles the requests of the Stacks screen."""

    def __init__(self, stage: Stage, stacks: StacksPort) -> None:
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
        if self._stage.context.mode is Mode.LIVE:
            self._answer(screen, partial(self._port.take_stacks, message.plan), screen.set_stacks)
        else:
            screen.refuse(READ_ONLY)

    def _answer(self, screen: StacksScreen, work: Callable[[], T], show: Callable[[T], object]) -> None:
        self._stage.do_aside(
            work,
            lambda result: show(result) if screen.is_attached else None,
            lambda error: screen.refuse(error) if screen.is_attached else None,
            "taking the stacks of all ranks",
        )
