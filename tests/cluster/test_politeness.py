"""coach's load on a real controller, counted by the controller itself: `sdiag`, per user."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coach.sources.rpc_budget import ACTIVE_PER_MIN, IDLE_PER_MIN, cost_of
from coach.sources.slurm.nodes import NODES_QUERY, PARTITIONS_QUERY
from coach.sources.slurm.queue import jobs_query
from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.ordinary_user import NOBODY
from tests.terminal.tmux import Terminal
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster]

_USER_LINE = re.compile(r"^\s+\S+\s*\(\s*(\d+)\) count:(\d+)", re.MULTILINE)


def rpcs_of_user(slurm: SlurmCluster, uid: int = NOBODY) -> int:
    """How many RPCs of this user the controller has counted."""
    said = slurm.run(["sdiag"], as_root=True).stdout
    return sum(int(count) for user, count in _USER_LINE.findall(said) if int(user) == uid)


def wait_for_time(until_s: float) -> None:
    """Wait until a time of the monotonic clock."""
    wait_until(lambda: time.monotonic() >= until_s, 200, "the time passes", every_s=1.0)


def test_the_controller_counts_as_many_rpcs_as_coach_estimates(slurm: SlurmCluster) -> None:
    job = slurm.submit("sleep 60")
    slurm.wait_state(job, "RUNNING")
    wrong = []
    for argv in (
        jobs_query(None).argv,
        jobs_query("nobody").argv,
        NODES_QUERY.argv,
        PARTITIONS_QUERY.argv,
        ("scontrol", "show", "job", "-d", job),
        ("scontrol", "show", "config"),
        ("scontrol", "ping"),
        ("sinfo", "-h"),
        ("sprio", "-h"),
        ("sdiag",),
        ("scancel", job),
    ):
        before = rpcs_of_user(slurm)
        slurm.run(argv)
        if (counted := rpcs_of_user(slurm) - before) > cost_of(argv):
            wrong.append((argv[:4], counted, cost_of(argv)))
    assert wrong == []


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_ten_minutes_of_two_coaches_cost_one_and_leave_the_controller_to_others(
    slurm: SlurmCluster, user_coach: InstalledCoach, open_terminal: Callable[..., Terminal]
) -> None:
    """Prints the RPCs of each minute: active at first, then idle. Where slurmctld limits rates (23.02 on),
    the same holds by its own counter."""
    for _ in range(3):
        slurm.submit("sleep 900")
    env = user_coach.env({"COACH_AS_ROOT": "1"})
    terminals = [open_terminal(user_coach.argv(), env=env, as_user=user_coach.user) for _ in range(2)]
    for terminal in terminals:
        terminal.wait_for("idle, free", timeout_s=60)
    counted, start_s = [rpcs_of_user(slurm)], time.monotonic()
    for minute in range(10):
        if minute == 0:
            terminals[0].send("j")
        wait_for_time(start_s + 60.0 * (minute + 1))
        counted.append(rpcs_of_user(slurm))
        if minute == 5:
            before_s = time.monotonic()
            slurm.submit("true")
            submit_s = time.monotonic() - before_s
    spent = [after - before for before, after in itertools.pairwise(counted)]
    print(f"\nRPCs a minute of two coaches: {spent}; sbatch took {submit_s:.2f} s")  # noqa: T201
    assert max(spent) <= ACTIVE_PER_MIN
    assert max(spent[4:]) <= IDLE_PER_MIN
    assert submit_s < 2.0


@pytest.mark.long
@pytest.mark.strace
@pytest.mark.timeout(600)
def test_an_idle_coach_asks_the_file_server_at_most_60_times_a_minute(
    slurm: SlurmCluster, user_coach: InstalledCoach, open_terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    """By strace: every open, stat and listing below the runs root."""
    home = user_coach.user.home
    runs_root = home / "coach-runs"
    trace = home / "trace"
    for number in range(200):
        run_dir = runs_root / f"20261121-{number:06d}-ddp-0000"
        run_dir.mkdir(parents=True)
        value = {"run_id": run_dir.name, "state": "COMPLETED", "ended_time_s": 2.0, "backend": "slurm"}
        (run_dir / "run.json").write_text(json.dumps(value))
    shutil.chown(runs_root, user_coach.user.uid)
    env = user_coach.env({"COACH_RUNS_ROOT": str(runs_root)})
    argv = [
        "strace",
        "-f",
        "-qq",
        "-ttt",
        "-e",
        "trace=%file,getdents64",
        "-o",
        str(trace),
        *user_coach.argv(),
    ]
    terminal = open_terminal(argv, env=env, as_user=user_coach.user)
    terminal.wait_for("idle, free", timeout_s=90)
    idle_from_s = time.time() + 130.0  # two minutes without a key are idle
    wait_until(lambda: time.time() >= idle_from_s + 120.0, 300, "two idle minutes", every_s=1.0)
    times = [
        float(line.split()[1])
        for line in trace.read_text(errors="replace").splitlines()
        if str(runs_root) in line and line.split()[1][:1].isdigit()
    ]
    num_idle = sum(idle_from_s <= time_s < idle_from_s + 120.0 for time_s in times)
    print(f"\n{num_idle / 2:.0f} questions a minute below the runs root while idle")  # noqa: T201
    assert num_idle / 2 <= 60
