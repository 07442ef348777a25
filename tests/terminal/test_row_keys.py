"""At a terminal, on a real Slurm: a job that coach did not launch is submitted again from its row, in the
queue and in the history."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

pytestmark = [pytest.mark.terminal, pytest.mark.cluster]

QUESTION = "y submits exactly this"


def test_f_on_a_row_submits_the_job_again_and_the_history_opens_its_log(
    slurm: SlurmCluster, user_coach: InstalledCoach, open_terminal: Callable[..., Terminal]
) -> None:
    job = slurm.submit("sleep 300", "--time=20", "-J", "bert")
    slurm.wait_state(job, "RUNNING")
    terminal = open_terminal(
        user_coach.argv(), columns=80, rows=24, env=user_coach.env(), as_user=user_coach.user
    )
    terminal.wait_for(re.compile(rf"▸ +{job}"))
    again = submit_again(terminal)
    assert again != job
    slurm.run(["scancel", job, again])
    slurm.wait_state(job, "CANCELLED")
    terminal.send("H")
    terminal.wait_for("› history", re.compile(rf"{job} +bert"))
    terminal.send("l")
    terminal.wait_for(f"job {job} › log")
    terminal.send("Escape")
    terminal.wait_for("› history", re.compile(rf"{job} +bert"))
    terminal.send("S")
    terminal.wait_for("only a running job has stacks")
    terminal.send("D")
    terminal.wait_for("no GPU of it was measured")
    third = submit_again(terminal)
    assert third not in (job, again)
    terminal.send("C-q")
    assert terminal.wait_exit() == 0


def submit_again(terminal: Terminal) -> str:
    """Press F and say yes; the new job's number."""
    terminal.send("F")
    terminal.wait_for("where y submits it")
    terminal.send("Enter")
    terminal.wait_for(QUESTION)
    told = re.compile(r"the new job is (\d+)")

    def is_told() -> bool:
        screen = terminal.screen()
        if QUESTION in screen:
            terminal.send("y")
        return told.search(screen) is not None

    wait_until(is_told, 20, "it was submitted again", every_s=0.4)
    found = told.search(terminal.screen())
    assert found is not None
    return found[1]
