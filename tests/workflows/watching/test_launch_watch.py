"""A launch that is interrupted while it submits, and one that is watched."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from coach.workflows.watching.launch_watch import _held


@pytest.fixture
def hangup() -> Iterator[None]:
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


def test_under_nohup_a_closed_terminal_ends_no_launch_while_it_submits(hangup: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with _held():
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_an_interruption_comes_after_the_submission(hangup: None) -> None:
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    submitted: list[str] = []

    def submit() -> None:
        with _held():
            os.kill(os.getpid(), signal.SIGHUP)
            submitted.append("run")

    with pytest.raises(KeyboardInterrupt):
        submit()
    assert submitted == ["run"]
