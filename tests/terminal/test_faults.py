"""A user at a cluster that fails, and a user who has just launched a run: real keys, a real screen, a real
Slurm."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable

import pytest

from tests.cluster.processes import programs_with_environment
from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.terminal.test_story import submit_plan
from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.terminal, pytest.mark.xdist_group("stories")]

OpenTerminal = Callable[..., Terminal]

_SLOW = '#!/bin/sh\n[ -e {flag} ] && sleep 4\nexec {squeue} "$@"\n'


@pytest.mark.long
def test_a_hanging_controller_is_shown_with_the_age_of_the_data_and_comes_back_without_a_key(
    user_coach: InstalledCoach, slurm: SlurmCluster, open_terminal: OpenTerminal
) -> None:
    slurm.submit("sleep 300", "--job-name=survivor")
    env = user_coach.env({"COACH_POLL_JOBS_INTERVAL_S": "2"})
    terminal = open_terminal(user_coach.argv(), columns=80, rows=24, env=env, as_user=user_coach.user)
    terminal.wait_for("survivor", timeout_s=60)
    terminal.wait_for("RUNNING", timeout_s=30)
    (controller,) = (each for each in slurm.processes() if each.name == "slurmctld")
    controller.signal(signal.SIGSTOP)
    most = 0

    def is_said() -> bool:
        nonlocal most
        most = max(most, len(programs_with_environment(f"HOME={user_coach.user.home}", "squeue")))
        screen = terminal.screen()
        return "no answer, backing off" in screen and "survivor" in screen

    wait_until(is_said, 60, "it says what is wrong, and the job is still there")
    screen = terminal.screen()
    assert re.search(r"✖ .*(no answer within 12 s|timed out).* data \d+ s old", screen), screen
    assert most == 1, "one question at a time"
    controller.signal(signal.SIGCONT)
    terminal.wait_gone("no answer", 90)
    assert "survivor" in terminal.screen()


@pytest.mark.long
@pytest.mark.parametrize("fault", ["stopped", "killed"])
def test_a_job_on_the_screen_stays_there_with_its_age_while_the_controller_is_away(
    user_coach: InstalledCoach, slurm: SlurmCluster, open_terminal: OpenTerminal, fault: str
) -> None:
    job_id = slurm.submit("echo begun; sleep 300", "--job-name=survivor")
    slurm.wait_state(job_id, "RUNNING")
    env = user_coach.env({"COACH_POLL_JOBS_INTERVAL_S": "2"})
    terminal = open_terminal(user_coach.argv(), columns=80, rows=24, env=env, as_user=user_coach.user)
    terminal.wait_for("survivor", timeout_s=60)
    terminal.send("Enter")
    terminal.wait_for(f"› job {job_id}", "RUNNING", "begun", timeout_s=30)
    if fault == "stopped":
        (controller,) = (each for each in slurm.processes() if each.name == "slurmctld")
        controller.signal(signal.SIGSTOP)
    else:
        slurm.wait_saved(job_id)
        slurm.kill_controller()
    screen = terminal.wait_for(
        f"› job {job_id}", "survivor", re.compile(r"✖ .* data \d+ s old"), "no answer", timeout_s=90
    )
    assert not re.search("COMPLETED|FAILED", screen), "the last answer stands"
    terminal.send("l")  # a key is obeyed: the log is a file, and needs no controller
    terminal.wait_for(re.compile(rf"job {job_id} › .*log"), "begun", timeout_s=15)
    terminal.send("Escape")
    terminal.wait_for(f"› job {job_id}", "survivor", timeout_s=15)
    if fault == "stopped":
        controller.signal(signal.SIGCONT)
    else:
        slurm.start_controller()
    screen = terminal.wait_gone(re.compile(r"✖ .* data"), 120)
    assert f"› job {job_id}" in screen
    assert "RUNNING" in screen


def test_a_slow_controller_is_named_and_asked_less_often(
    user_coach: InstalledCoach, slurm: SlurmCluster, open_terminal: OpenTerminal
) -> None:
    """A wrapper makes the controller slow, because a real one is slow only by chance or under a rate
    limit."""
    slurm.submit("sleep 300", "--job-name=patient")
    folder = user_coach.user.home / "bin"
    folder.mkdir(mode=0o755)
    wrapper, flag = folder / "squeue", folder / "slow"
    wrapper.write_text(_SLOW.format(flag=flag, squeue=shutil.which("squeue")))
    wrapper.chmod(0o755)
    shutil.chown(folder, user_coach.user.uid)
    more = {"COACH_POLL_JOBS_INTERVAL_S": "2", "PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin"}
    terminal = open_terminal(
        user_coach.argv(), columns=80, rows=24, env=user_coach.env(more), as_user=user_coach.user
    )
    terminal.wait_for("patient", timeout_s=60)
    flag.touch()
    screen = terminal.wait_for("controller slow, backing off", "patient", timeout_s=30)
    failed = re.search(r"✖ .* (data .* old|nothing read yet)", screen)
    assert not failed, "an answer that is late is an answer"
    terminal.wait_for(re.compile(r"jobs 1\d s"), timeout_s=30)  # the interval is 2 s


def test_a_launched_job_is_in_the_queue_within_five_seconds_although_the_minute_is_spent(
    user_coach: InstalledCoach, slurm: SlurmCluster, open_terminal: OpenTerminal
) -> None:
    env = user_coach.env({"COACH_POLL_JOBS_INTERVAL_S": "2", "COACH_LAUNCH_CPUS_PER_TASK": "1"})
    terminal = open_terminal(user_coach.argv(), columns=100, rows=30, env=env, as_user=user_coach.user)
    terminal.wait_for(re.compile(r"to spare Slurm · \d+ RPC/min of 24"), timeout_s=60)
    submit_plan(terminal, "1", is_slurm=True, max_steps="3000", num_workers="0", width="8")
    accepted_s = time.monotonic()
    terminal.send("Escape")
    # Its columns are others once a training is measured, also one of an earlier test.
    terminal.wait_for(re.compile(r"▸ +\d+ +baseline +nobody|\d+ +baseline +(PENDING|RUNNING)"), timeout_s=5)
    assert time.monotonic() - accepted_s < 5.0
