"""A command that outlives its `coach run`: its run is RUNNING, can be cancelled, and is not removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from coach.config import Settings
from coach.launch import local
from coach.sources.io import SystemIo
from coach.workflows.jobs.clean import Selection, plan_clean
from coach.workflows.jobs.known_runs import KnownRun, read_known_runs
from tests.node.conftest import Start
from tests.waiting import wait_until


@pytest.fixture
def left_alone(start: Start, tmp_path: Path) -> Iterator[tuple[Settings, int]]:
    """The settings of a run whose `coach run` was killed, and the pid of its command."""
    supervisor = start("run", "--", "sleep", "600")
    root = tmp_path / "home" / "runs"

    def command() -> int | None:
        for run_json in root.glob("*/run.json"):
            process = json.loads(run_json.read_text()).get("process")
            if process and Path(f"/proc/{process['pid']}/cmdline").read_bytes().startswith(b"sleep"):
                return int(process["pid"])
        return None

    pid = wait_until(command, what="the command in run.json")
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    yield Settings(root, tmp_path / "cache", tmp_path / "config"), pid
    subprocess.run(["kill", "-KILL", str(pid)], stderr=subprocess.DEVNULL)


def only(settings: Settings) -> KnownRun:
    (one,) = read_known_runs(settings, SystemIo({}), "ada").runs
    return one


def test_it_is_running_and_is_not_removed(left_alone: tuple[Settings, int]) -> None:
    settings, pid = left_alone
    one = only(settings)
    assert one.run.state == "RUNNING"
    plan = plan_clean(Selection(run_ids=(one.run.run_id,)), settings, SystemIo({}), "ada")
    assert (plan.removals, [kept.because for kept in plan.kept]) == ((), ["it is RUNNING on this machine"])
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: only(settings).run.state == "NODE_FAIL", what="the end of the run")
    plan = plan_clean(Selection(run_ids=(one.run.run_id,)), settings, SystemIo({}), "ada")
    assert [removal.run.run_id for removal in plan.removals] == [one.run.run_id]


def test_cancelling_it_ends_the_command(left_alone: tuple[Settings, int]) -> None:
    settings, _ = left_alone
    local.cancel(Path(only(settings).run.run_dir))
    wait_until(lambda: only(settings).run.state == "NODE_FAIL", what="the end of the run")
    assert only(settings).alive_because is None
