"""Windows of logs for the Log screen. They change nothing, so no launch waits for them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coach.model.errors import UserError
from coach.model.training.log_window import LogWindow
from coach.tui import messages
from coach.tui.controllers.handlers import Handlers
from coach.tui.ports import LogPort
from coach.tui.stage import Stage

if TYPE_CHECKING:
    from coach.tui.screens.log import LogScreen

_NOTE_BYTES = 32 << 20
"""Progress is shown each time this many more bytes were read."""


class Logs:
    """Handles the requests of the Log screen."""

    def __init__(self, stage: Stage, logs: LogPort) -> None:
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
