"""The New Launch screen: the programs and recipes of the working directory, and the plan of an opened row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.tui import messages
from coach.tui.controllers.handlers import Handlers
from coach.tui.mode import Mode
from coach.tui.ports import LaunchablePort
from coach.tui.stage import READ_ONLY, Stage

if TYPE_CHECKING:
    from coach.tui.screens.new_launch import NewLaunchScreen

OpenPlan = Callable[[str, Callable[[], LaunchRequest]], object]


class NewLaunches:
    """Searches the directory in a thread of its own, so that a large directory does not delay a launch."""

    def __init__(self, stage: Stage, port: LaunchablePort, open_plan: OpenPlan, backend: str) -> None:
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
        if self._stage.context.mode is not Mode.LIVE:
            self._stage.note(READ_ONLY)
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
