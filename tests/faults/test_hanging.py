"""A home whose file server is gone, so that every call on it waits: screens and commands say so, and end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coach.model.snapshot import Watch
from coach.poller import HANG_S, Poller
from coach.sources.io import SystemIo
from coach.sources.polite.polling import Pace
from coach.sources.runs.run_list import RunListSource
from coach.workflows.patience import patience
from tests.faults.hanging import hanging, why_not
from tests.terminal.tmux import Terminal
from tests.waiting import PATIENCE, wait_until

needs_fuse = pytest.mark.skipif(why_not() is not None, reason=f"no file system that hangs: {why_not()}")
COACH = (sys.executable, "-m", "coach")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """One with a run in it."""
    folder = tmp_path / "home"
    folder.mkdir()
    subprocess.run([*COACH, "run", "--", "true"], env=env_of(folder), check=True, capture_output=True)
    return folder


def env_of(home: Path) -> dict[str, str]:
    kept = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "COACH_AS_ROOT": "1"}
    return {**kept, "HOME": str(home), "COACH_HOME": str(home / "coach")}


@needs_fuse
def test_a_command_that_reads_a_hanging_file_system_says_so_while_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coach.poller.HANG_S", 0.1)
    pace = Pace()
    source = RunListSource(SystemIo({}, on_file_op=pace.count_file_op), tmp_path / "runs")
    poller = Poller(lambda watch: {"runs": lambda: source}, pace=pace)
    (tmp_path / "runs").mkdir()
    with hanging(tmp_path):
        poller.watch(Watch())
        (told,) = wait_until(lambda: poller.readings(0.05), 10, "it is told")
        assert (told.source, told.payload, told.is_caught_up) == ("runs", None, False)
        assert told.error == f"no answer from the file system {tmp_path}"
        assert poller.readings(0.2) == [], "it is told once"
    wait_until(lambda: any(each.error is None for each in poller.readings(0.05)), 60, "it is read again")
    poller.stop()


@needs_fuse
def test_a_command_that_waits_for_a_file_system_says_so(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COACH_HOME", str(tmp_path / "coach"))
    # Where the suite runs in the background, Ctrl-C is passed over in it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    said = ""
    with hanging(tmp_path), patience(0.0, 0.1):

        def is_said() -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return bool(said)

        wait_until(is_said, 10, "it is said")
    assert said == f"coach: no answer from the file system {tmp_path}; Ctrl-C ends coach\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(10)
        pytest.fail("Ctrl-C does what it did before")


def test_a_command_that_only_takes_long_says_nothing_of_file_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COACH_HOME", str(tmp_path / "coach"))
    with patience(0.0, 60.0):
        wait_until(lambda: "asking" not in {each.name for each in threading.enumerate()}, 10)
    assert capsys.readouterr().err == ""


@needs_fuse
@pytest.mark.long
@pytest.mark.parametrize("words", ["runs", "check", "jobs --backend local", "why"])
def test_ctrl_c_ends_a_command_that_waits_for_its_home(home: Path, words: str) -> None:
    with hanging(home):
        process = subprocess.Popen(
            [*COACH, *words.split()], env=env_of(home), stderr=subprocess.PIPE, text=True, cwd="/"
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(10 * PATIENCE) == -signal.SIGINT
    assert line == f"coach: no answer from the file system {home}; Ctrl-C ends coach\n"


@needs_fuse
@pytest.mark.long
@pytest.mark.terminal
@pytest.mark.parametrize("keys", [("?",), ("s",), ("Enter", "l"), ("f",), ("1",), ("d",)], ids="-".join)
def test_over_a_home_that_hangs_the_screens_say_so_take_keys_and_leave(
    home: Path, open_screens: Terminal, keys: tuple[str, ...]
) -> None:
    screen = open_screens.wait_for("run-", "COMPLETED", timeout_s=60)
    with hanging(home):
        open_screens.wait_for(
            re.compile("✖ no answer from the file system .* · .*data .+ old"),
            "COMPLETED",
            timeout_s=4 * HANG_S,
        )
        for key in keys:
            open_screens.send(key)
        wait_until(lambda: open_screens.screen() != screen, 10, "the keys are obeyed")
        for _ in range(3):
            open_screens.send("Escape")
        open_screens.wait_for("q quit", timeout_s=20)
        open_screens.send("q")
        assert open_screens.wait_exit(20) == 0


@pytest.fixture
def open_screens(home: Path) -> Iterator[Terminal]:
    """The home is coach's alone: tmux looks into its own."""
    words = ["env", "-i", "TERM=xterm-256color", *(f"{name}={value}" for name, value in env_of(home).items())]
    with Terminal([*words, *COACH, "--backend", "local"], columns=110, rows=30, cwd=Path("/")) as terminal:
        yield terminal
