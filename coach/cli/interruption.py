"""What ends a command that has started jobs: a closed terminal and `kill` end it as Ctrl+C does, so that it still cancels them."""

from __future__ import annotations

import signal
from types import FrameType


def end_as_by_ctrl_c() -> None:
    """From now on SIGTERM, SIGHUP and SIGINT raise KeyboardInterrupt; `nohup` takes SIGHUP away."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
