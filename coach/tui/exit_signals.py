"""Leave when the terminal is closed or somebody ends coach: cleanly if the screens still answer, at once if
they do not.

Textual takes no notice of these signals: the default would leave a shell without echo on the alternate
screen, and handling them carelessly would leave a process without a terminal on a login node, which waits for
a controller that does not answer.
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

LEAVE_TIMEOUT_S = 4.0
"""How long the screens may take to go; what Slurm's clients are doing then ends with the process."""

GONE_TIMEOUT_S = 2.5
"""The same where the terminal is gone: there is nothing to give back, and Textual may wait for ever for its
last words to be painted."""

FINISH_AT_SIGNAL_S = 2.0
"""How long a submission or cancellation that is under way is waited for."""

_RESTORE = "\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[<u\x1b[?1049l\x1b[?25h"
"""Mouse, paste and focus reports off; the first screen back; the cursor shown."""


def terminal_modes() -> list[Any] | None:
    """The terminal's modes before the app changes them; None without a terminal."""
    with contextlib.suppress(termios.error):
        return termios.tcgetattr(0)
    return None


def leave_at_signals(app: App[Any], modes: list[Any] | None) -> None:
    """From now on SIGHUP and SIGTERM close the app. Called in the event loop of the main thread; `modes` is
    what the terminal had before.

    A handler of the loop would wait for the loop: it may stand still, waiting for a terminal that takes
    nothing.
    """
    loop = asyncio.get_running_loop()

    def heed(number: int, frame: object) -> None:
        _leave(app, loop, number, modes)

    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, heed)


def _leave(app: App[Any], loop: asyncio.AbstractEventLoop, number: int, modes: list[Any] | None) -> None:
    status = 128 + number
    timeout_s = LEAVE_TIMEOUT_S if _has_terminal() else GONE_TIMEOUT_S
    last_resort = threading.Timer(timeout_s, _leave_at_once, (status, modes))
    last_resort.daemon = True
    last_resort.start()
    with contextlib.suppress(RuntimeError):  # the loop has ended: coach is on its way out
        loop.call_soon_threadsafe(lambda: app.exit(return_code=status))


def _has_terminal() -> bool:
    """Whether it is still there. What is painted for nobody goes nowhere from then on, instead of failing."""
    has_hung_up = False
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:  # it has hung up; a file or a pipe says otherwise
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
