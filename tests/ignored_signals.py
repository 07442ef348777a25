"""Signals that were ignored when the suite was started: `nohup make test` ignores SIGHUP, `make test &` in a
script SIGINT.

A program inherits what its parent ignores, so the programs under test would not hear Ctrl-C. A handler is not
inherited: a handler that does nothing keeps the suite as deaf as it was started, and its children hear again.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

_NAMES = "COACH_TEST_IGNORED_SIGNALS"
"""In the environment: pytest-xdist's workers start with default actions."""
_NUMBERS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1)


def let_children_hear() -> None:
    """Replace "ignore" by a handler that does nothing, here and in the workers that are started from here."""
    known = os.environ.get(_NAMES, "").split()
    for number in _NUMBERS:
        if number.name in known or signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _pass_over)
            known.append(number.name)
    os.environ[_NAMES] = " ".join(dict.fromkeys(known))


def _pass_over(number: int, frame: FrameType | None) -> None:
    pass
