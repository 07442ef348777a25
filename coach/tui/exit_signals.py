"""Leaves coach at a signal that ends programs: cleanly if the screens still answer, else at once.

Textual does not handle these signals. Python's default would leave the shell without echo, on the alternate
screen. A handler that only waited for Slurm could leave a process without a terminal on the login node, if
the controller does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import termios
import threading
from typing import Any

from textual.app import App

_NUMBERS = (
    *(signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),  # a slip of the hand, or a wrapper's
)

LEAVE_TIMEOUT_S = 4.0
"""How long the screens may take to close. After that, running Slurm clients end with the process."""

GONE_TIMEOUT_S = 2.5
"""The same for a closed terminal: it needs no restoring, and Textual may wait for ever to paint on it."""

FINISH_AT_SIGNAL_S = 2.0
"""How long leaving waits for a submission or cancellation under way."""

_RESTORE = "\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[<u\x1b[?1049l\x1b[?25h"
"""Turn off mouse, paste and focus reports; return to the main screen; show the cursor."""


def terminal_modes() -> list[Any] | None:
    """The terminal's modes before the app changes them; None without a terminal."""
    with contextlib.suppress(termios.error):
        return termios.tcgetattr(0)
    return None


def leave_at_signals(app: App[Any], modes: list[Any] | None) -> None:
    """Make signals close the app. Called in the event loop of the main thread; `modes` are the
    terminal's modes before the app changed them.

    It does not use a handler of the event loop: the loop may be blocked by a write to a terminal that accepts
    nothing.
    """
    loop = asyncio.get_running_loop()

    def heed(number: int, frame: object) -> None:
        _leave(app, loop, number, modes)

    for number in _NUMBERS:
        signal.signal(number, heed)


def _leave(app: App[Any], loop: asyncio.AbstractEventLoop, number: int, modes: list[Any] | None) -> None:
    status = 128 + number
    timeout_s = LEAVE_TIMEOUT_S if _has_terminal() else GONE_TIMEOUT_S
    last_resort = threading.Timer(timeout_s, _leave_at_once, (status, modes))
    last_resort.daemon = True
    last_resort.start()
    with contextlib.suppress(RuntimeError):  # the loop has ended: coach is leaving
        loop.call_soon_threadsafe(lambda: app.exit(return_code=status))


def _has_terminal() -> bool:
    """True if the terminal is still open. If not, output is discarded from now on, so that painting does not
    fail."""
    has_hung_up = False
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:  # EIO: it has hung up. A file or a pipe raises another error
                os.dup2(nowhere, stream)
                has_hung_up = True
    os.close(nowhere)
    return not has_hung_up


def _leave_at_once(status: int, modes: list[Any] | None) -> None:
    with contextlib.suppress(OSError, termios.error):
        if modes is not None:
            termios.tcsetattr(0, termios.TCSANOW, modes)
            os.write(2, _RESTORE.encode())
    os._exit(status)
