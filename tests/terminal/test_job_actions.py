"""At a terminal, on a real Slurm: two jobs are selected, held, released, shortened, requeued and cancelled,
each after its exact command."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

QUESTION = "y runs exactly this"
pytestmark = [pytest.mark.terminal, pytest.mark.cluster]


def test_two_selected_jobs_are_held_released_shortened_requeued_and_cancelled(
    slurm: SlurmCluster, user_coach: InstalledCoach, open_terminal: Callable[..., Terminal]
) -> None:
    hostile = "[@click=app.quit]x[/]\x1b[31m"
    first = slurm.submit("sleep 300", "--begin=now+1hour", "--time=20", "-J", hostile)
    second = slurm.submit("sleep 300", "--begin=now+1hour", "--time=20")
    terminal = open_terminal(
        user_coach.argv(), columns=80, rows=24, env=user_coach.env(), as_user=user_coach.user
    )
    terminal.wait_for(re.compile(rf"▸ +{second}"))

    def select_both() -> None:
        terminal.send("Home", "Space", "Space")
        terminal.wait_for("2 selected")

    def does(key: str, command: str, outcome: str) -> None:
        select_both()
        terminal.send(key)
        terminal.wait_for(f"$ {command}")
        answered(terminal, outcome)

    select_both()
    question = asks(terminal, "h")
    assert re.search(rf"{first} +\[@click=app.quit\]x\[/\].* +PENDING", question)
    jobs = re.search(r"Hold 2 jobs: (\d+), (\d+)", question)
    assert jobs is not None
    assert set(jobs.groups()) == {first, second}
    one, two = jobs.groups()
    terminal.send("Escape")
    assert "selected" not in terminal.wait_gone(QUESTION)
    does("h", f"scontrol hold {one},{two}", "were held")
    does("U", f"scontrol release {one},{two}", "were released")
    select_both()
    terminal.send("T")
    terminal.wait_for("new time limit")
    terminal.send("3", "0", "Enter")
    terminal.wait_for("nothing can be done")
    terminal.send("Escape")
    terminal.wait_gone("new time limit")
    select_both()
    terminal.send("T")
    terminal.wait_for("new time limit")
    terminal.send("5", "Enter")
    terminal.wait_for(f"$ scontrol update jobid={one},{two} timelimit=00:05:00")
    answered(terminal, "lower time limit")
    slurm.run(["scontrol", "update", f"jobid={one}", "starttime=now"])
    slurm.wait_state(one, "RUNNING")
    does("Q", f"scontrol requeue {one}", "was requeued")
    does("x", f"scancel {one} {two}", "were cancelled")
    for job_id in (first, second):
        slurm.wait_state(job_id, "CANCELLED")
    terminal.send("C-q")
    assert terminal.wait_exit() == 0


def answered(terminal: Terminal, outcome: str) -> None:
    """Press y until it counts; within 0.3 s of the question it is refused. The result is shown until the next
    key."""

    def is_told() -> bool:
        screen = terminal.screen()
        if QUESTION in screen:
            terminal.send("y")
        return outcome in screen

    wait_until(is_told, 20, outcome, every_s=0.4)


def asks(terminal: Terminal, key: str) -> str:
    terminal.send(key)
    return terminal.wait_for(QUESTION)
