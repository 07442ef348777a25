"""Four questions at a terminal, on a real Slurm: free GPUs, places to run, the expected start, the reason for
a wait."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.terminal.tmux import Terminal

pytestmark = [pytest.mark.terminal]

OpenTerminal = Callable[..., Terminal]


def test_a_user_with_an_array_that_waits_learns_all_four_by_single_keys(
    user_coach: InstalledCoach, slurm: SlurmCluster, open_terminal: OpenTerminal
) -> None:
    drain = ["scontrol", "update", "nodename=node3", "state=drain", "reason=fan [@click=app.quit]"]
    assert slurm.run(drain, as_root=True).returncode == 0
    ended = slurm.submit("true", "--mem=100", "-J", "ended")
    slurm.wait_state(ended, "COMPLETED")
    array = slurm.submit("sleep 300", "-p", "gpu", "-a", "0-3%1", "--gpus=a100:1", "--mem=100", "-J", "sweep")
    slurm.wait_state(f"{array}_0", "RUNNING")
    after = slurm.submit("true", "-d", f"afterok:{array}", "--mem=100", "-J", "after")

    terminal = open_terminal(
        user_coach.argv(), columns=120, rows=24, env=user_coach.env(), as_user=user_coach.user
    )
    terminal.wait_for("free 3 of 6 a100", timeout_s=30)
    terminal.wait_for(f"· after {array}")
    terminal.wait_for("3 PD 1 R")
    terminal.send("u")
    terminal.wait_for(f"└ {array}_3")
    terminal.send("u")
    terminal.wait_gone("└")

    terminal.send("\r")
    terminal.wait_for("array run as its own limit")
    terminal.wait_for(re.compile(rf"{array}_3 +PENDING +· array limit"))
    terminal.send("Escape")
    terminal.wait_for("LEFT/START")

    terminal.send("W")
    terminal.wait_for(
        "free 3 of 6 a100 on 2 nodes, at most 2 on one node", "2 idle, not available: it is drained"
    )
    terminal.send("Escape")
    terminal.wait_for("LEFT/START")

    terminal.send("BTab", "Down", "Enter")
    terminal.wait_for(f"job {array}_0 of", "1 free of 2 a100")
    terminal.send("Escape")
    terminal.wait_for("LEFT/START")
    terminal.send("Home", "Enter")
    terminal.wait_for("fan [@click=app.quit]")
    terminal.wait_for(re.compile(r"given by +root, \d+ s ago"))
    terminal.send("Escape")
    terminal.wait_for("LEFT/START")

    terminal.send("H")
    terminal.wait_for(re.compile(rf"{ended} +ended +COMPLETED"), "accounting gives no answer", timeout_s=60)
    terminal.send("Enter")
    terminal.wait_for("the queue, when it was last seen there")
    terminal.send("C-q")
    assert terminal.wait_exit() == 0
    assert slurm.job_state(after) == "PENDING"
