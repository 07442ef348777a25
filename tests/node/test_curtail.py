"""The training of a batch file is ended before its limit, and no later command of the file starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from coach.node.curtail import curtail
from tests.waiting import wait_until

TRAINING = """
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path("saved").write_text("")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
pathlib.Path("trains").write_text("")
time.sleep(60)
"""


def started(folder: Path, interpreter: str, script: str) -> subprocess.Popen[bytes]:
    """A process that runs a batch file as its child, as `coach run` does."""
    (folder / "train.py").write_text(TRAINING)
    (folder / "script").write_text(script)
    parent = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]) & 0xFF)"
    process = subprocess.Popen(
        [sys.executable, "-c", parent, *interpreter.split(), str(folder / "script")], cwd=folder
    )
    wait_until((folder / "trains").exists, 30, "it trains")
    return process


@pytest.mark.parametrize(
    "line", [f"{sys.executable} train.py", f"bash -c '{sys.executable} train.py; touch inner'"]
)
def test_the_program_saves_and_the_shell_goes_no_further(tmp_path: Path, line: str) -> None:
    process = started(tmp_path, "bash", f"{line}\ntouch behind\n")
    assert curtail(process.pid, lambda s: None)
    assert process.wait(30) == -15 & 0xFF
    assert (tmp_path / "saved").exists()
    assert not (tmp_path / "behind").exists()


def test_a_training_that_took_the_shell_s_place_receives_the_signal_itself(tmp_path: Path) -> None:
    process = started(tmp_path, "bash", f"exec {sys.executable} train.py\n")
    assert curtail(process.pid, lambda s: None)
    assert process.wait(30) == 0
    assert (tmp_path / "saved").exists()


def test_a_batch_file_in_python_receives_the_signal_itself(tmp_path: Path) -> None:
    process = started(tmp_path, sys.executable, TRAINING)
    assert curtail(process.pid, lambda s: None)
    assert process.wait(30) == 0
    assert (tmp_path / "saved").exists()


def test_the_helpers_of_coach_run_are_not_signalled(tmp_path: Path) -> None:
    helper = tmp_path / "coach" / "node"
    helper.mkdir(parents=True)
    (helper / "__main__.py").write_text(TRAINING)
    process = started(tmp_path, f"{sys.executable} {helper}", "")
    assert not curtail(process.pid)
    assert process.poll() is None
    (child,) = psutil.Process(process.pid).children()
    child.terminate()
    assert process.wait(30) == 0
