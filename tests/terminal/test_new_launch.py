"""At a terminal, on a real Slurm: `+` picks a user's own script; it is planned with its own arguments and
launched, and the next time it is among the recent commands."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.ordinary_user import User
from tests.terminal.test_story import PLAN, is_accepted, listed_runs, settle
from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

pytestmark = [pytest.mark.terminal, pytest.mark.cluster]

SCRIPT = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
parser.add_argument("--greeting", default="hello")
arguments = parser.parse_args()
print(f"{arguments.greeting} lr={arguments.lr}", flush=True)
"""


def project_of(user: User) -> Path:
    """A directory with a script two folders deep, and scripts that a user does not start."""
    project = user.home / "project"
    for name in ("tools/small", "venv/bin", ".git"):
        (project / name).mkdir(parents=True)
    (project / "tools" / "small" / "train_mine.py").write_text(SCRIPT)
    (project / "venv" / "pyvenv.cfg").write_text("")
    (project / "venv" / "bin" / "not_mine.py").write_text("")
    (project / ".git" / "hook.py").write_text("")
    for folder, names, files in os.walk(project):
        for name in (".", *names, *files):
            os.chown(Path(folder, name), user.uid, user.gid)
    return project


def test_a_script_picked_from_the_files_is_launched_with_its_own_arguments(
    slurm: SlurmCluster, bare_coach: InstalledCoach, open_terminal: Callable[..., Terminal]
) -> None:
    project = project_of(bare_coach.user)
    terminal = open_terminal(
        bare_coach.argv(),
        columns=80,
        rows=24,
        env=bare_coach.env(),
        as_user=bare_coach.user,
        cwd=project,
    )
    terminal.wait_for("queue")
    terminal.send("+")
    listed = terminal.wait_for("› new launch", re.compile(r"file +tools/small/train_mine\.py"))
    assert "not_mine" not in listed
    assert "hook.py" not in listed
    terminal.send("/")
    terminal.send_text("train_mine")
    terminal.send("Enter")
    terminal.wait_for('filter "train_mine": 1')
    terminal.send("Enter")
    terminal.wait_for("› launch train_mine", PLAN)
    settle(terminal)
    terminal.send("Down")  # from lr: the script's own parameters come first
    terminal.send_text("good-day")
    terminal.wait_for(re.compile(r"greeting +good-day"))
    settle(terminal)
    wait_until(lambda: is_accepted(terminal), 30, "the plan is submitted")
    terminal.wait_for("COMPLETED", timeout_s=60)
    (run,) = listed_runs(bare_coach)
    assert run["recipe"] == "train_mine"
    assert "good-day lr=0.1" in Path(run["run_dir"], "stdout.log").read_text()
    launch = json.loads(Path(run["run_dir"], "run.json").read_text())["launch"]
    assert launch["set"] == {"greeting": "good-day"}
    assert launch["own"]["words"] == ["tools/small/train_mine.py"]
    assert launch["own"]["directory"] == str(project)
    terminal.send("+")
    terminal.wait_for(re.compile(r"recent +tools/small/train_mine\.py"))
    terminal.send("C-q")
    assert terminal.wait_exit() == 0
