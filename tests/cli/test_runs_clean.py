"""`coach runs` and `coach runs clean` as a user types them; squeue is a script that says nothing, or that the
controller is down."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import typed_coach
from tests.workflows.known import DAY_S, World

OLD, NEW = "20261121-142230-ddp-0000", "20261121-142231-ddp-0001"


class Shell:
    def __init__(self, root: Path) -> None:
        self.world = World(root)
        (root / "bin").mkdir()
        self.squeue("exit 0")
        self.env = {
            **os.environ,
            "COACH_HOME": str(root),
            "PYTHONPATH": str(Path.cwd()),
            "COACH_AS_ROOT": "1",
        }
        self.env |= {"PATH": f"{root / 'bin'}:{os.environ['PATH']}", "SLURM_CLUSTER_NAME": "tiger"}

    def squeue(self, body: str) -> None:
        path = self.world.settings.config_dir.parent / "bin" / "squeue"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def coach(self, *args: str, **options: object) -> subprocess.CompletedProcess[str]:
        if options.get("stdin", subprocess.DEVNULL) == subprocess.DEVNULL:
            return typed_coach(("runs", *args), self.env)
        command = [sys.executable, "-m", "coach", "runs", *args]
        given = {"env": self.env, "capture_output": True, "text": True, "timeout": 60, **options}
        return subprocess.run(command, **given)  # type: ignore[call-overload,no-any-return] # options of run


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_the_table_shows_the_size_of_each_run_and_the_runs_with_an_unknown_end(shell: Shell) -> None:
    shell.world.make(OLD, "RUNNING", 9 * DAY_S)
    shell.world.make(NEW)
    done = shell.coach()
    assert done.returncode == 0, done.stderr
    new, old = done.stdout.splitlines()[1:]
    assert "COMPLETED" in new
    assert "1.3" in new.partition(" kB")[0]
    assert "RUNNING" not in old
    assert f"how it ended is unknown: {OLD}" in done.stderr
    listed = json.loads(shell.coach("--format", "json").stdout)["runs"]
    assert [(run["state"], run["size_bytes"] > 1000) for run in listed] == [("COMPLETED", True), (None, True)]


def test_a_controller_that_is_down_is_named_and_the_last_state_is_shown(shell: Shell) -> None:
    shell.world.make(OLD, "RUNNING", 9 * DAY_S)
    shell.squeue("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    done = shell.coach()
    assert "RUNNING" in done.stdout
    assert "Unable to contact slurm controller" in done.stderr
    clean = shell.coach("clean", OLD, "--yes")
    assert (clean.returncode, f"kept: {OLD}" in clean.stderr) == (1, True)
    assert (shell.world.settings.runs_root / OLD).is_dir()


def test_runs_to_remove_are_listed_and_without_a_terminal_or_yes_none_is_removed(shell: Shell) -> None:
    run_dir = shell.world.make(OLD)
    done = shell.coach("clean", "--keep", "0", "--state", "completed", stdin=subprocess.DEVNULL)
    assert (done.returncode, OLD in done.stdout, "--yes" in done.stderr) == (2, True, True)
    listed = json.loads(shell.coach("--format", "json", "clean", OLD).stdout)
    assert ([run["run_id"] for run in listed["runs"]], listed["is_removed"]) == ([OLD], False)
    assert run_dir.is_dir()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "to be confirmed: remove 1 run"),
        (("--older-than", "soon"), "expected for example"),
        (("--keep", "-1"), "--keep"),
        (("nothing",), "no such run"),
    ],
)
def test_a_wish_that_is_not_clear_is_refused_in_one_line(
    shell: Shell, args: tuple[str, ...], words: str
) -> None:
    run_dir = shell.world.make(OLD)
    done = shell.coach("clean", *args, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert run_dir.is_dir()


@pytest.mark.parametrize(("answer", "status", "is_there"), [(b"y\n", 0, False), (b"\n", 1, True)])
def test_only_a_y_on_the_terminal_removes(shell: Shell, answer: bytes, status: int, is_there: bool) -> None:
    run_dir = shell.world.make(OLD)
    outer, inner = pty.openpty()
    try:
        os.write(outer, answer)
        done = shell.coach("clean", "--older-than", "1d", stdin=inner)
    finally:
        os.close(outer)
        os.close(inner)
    assert (done.returncode, run_dir.exists()) == (status, is_there)
    assert "1 run, 1.3" in done.stderr


def test_yes_removes_the_chosen_runs(shell: Shell) -> None:
    gone, stays = shell.world.make(OLD), shell.world.make(NEW)
    done = shell.coach("clean", "--keep", "1", "--yes")
    assert (done.returncode, gone.exists(), stays.exists()) == (0, False, True), done.stderr
    assert "removed 1.3" in done.stderr
    again = shell.coach("clean", "--keep", "1", "--yes")
    assert (again.returncode, again.stderr) == (0, "coach: nothing to remove\n")
