from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.ignored_signals import let_children_hear

_PRINT_IGNORED = """
import signal
print(*(s.name for s in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT) if signal.getsignal(s) is signal.SIG_IGN))
"""


def ignored_by_a_child() -> list[str]:
    argv = [sys.executable, "-c", _PRINT_IGNORED]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


def test_the_programs_under_test_hear_signals_that_the_suite_was_started_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COACH_TEST_IGNORED_SIGNALS", raising=False)
    assert ignored_by_a_child() == []
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    assert ignored_by_a_child() == ["SIGHUP", "SIGINT"]

    let_children_hear()

    assert ignored_by_a_child() == []
    os.kill(os.getpid(), signal.SIGHUP)  # the suite itself still passes them over
    os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    let_children_hear()  # as in a worker, which starts with default actions
    os.kill(os.getpid(), signal.SIGINT)
