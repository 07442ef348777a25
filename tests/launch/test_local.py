"""The real local backend: detached supervisors that run plain scripts, and their files afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from coach import runs
from coach.launch import local
from coach.model.errors import UserError
from coach.model.slurm.cluster import MACHINE_RESTARTED
from coach.sources.runs.local_process import (
    find_supervisor,
    identify,
    is_alive,
    look,
    state_of,
)
from tests.waiting import wait_until

MakeRun = Callable[..., runs.RunPaths]


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[MakeRun]:
    """A run directory with a script and its limits. All processes that it starts are ended."""
    made: list[runs.RunPaths] = []

    def make(script: str, **resources: Any) -> runs.RunPaths:
        paths = runs.create_run_dir(tmp_path, runs.new_run_id("test", 1795271000.0))
        paths.job_script.write_text(f"#!/bin/bash\n{script}\n")
        runs.write_json(paths.run_json, {"schema": 1, "state": "PENDING", "resources": resources})
        made.append(paths)
        return paths

    yield make
    for paths in made:
        process = find_supervisor(runs.read_json(paths.run_json))
        if process is not None:
            with contextlib.suppress(psutil.Error):
                for each in [*process.children(recursive=True), process]:
                    each.kill()


def ended(paths: runs.RunPaths, timeout_s: float = 20.0) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        if not paths.exit_json.exists() or is_alive(runs.read_json(paths.run_json)):
            return None
        return runs.read_json(paths.exit_json)

    return wait_until(look, timeout_s, f"{paths.run_dir} has ended") or {}


def started(paths: runs.RunPaths, name: str = "here") -> int:
    """The number that the script wrote into a file: a process id."""
    file = paths.run_dir / name
    wait_until(lambda: file.exists() and file.read_text().strip(), 20.0, f"the script wrote {name}")
    return int(file.read_text())


def test_a_script_that_succeeds_is_completed(make_run: MakeRun) -> None:
    paths = make_run("echo out; echo err >&2; pwd > where")
    local.start(paths.run_dir, os.environ)
    end = ended(paths)
    assert (end["state"], end["exit_code"]) == ("COMPLETED", 0)
    assert paths.stdout_log.read_text() == "out\n"
    assert paths.stderr_log.read_text() == "err\n"
    assert (paths.run_dir / "where").read_text().strip() == str(paths.run_dir)
    run_json = runs.read_json(paths.run_json)
    assert run_json["state"] == "COMPLETED"
    assert run_json["started_time_s"] <= run_json["ended_time_s"]


def test_a_script_that_fails_is_failed_with_its_status(make_run: MakeRun) -> None:
    paths = make_run("exit 42")
    local.start(paths.run_dir, os.environ)
    assert (ended(paths)["state"], ended(paths)["exit_code"]) == ("FAILED", 42)


def test_a_script_that_is_killed_is_failed_with_its_signal(make_run: MakeRun) -> None:
    paths = make_run("kill -SEGV $$")
    local.start(paths.run_dir, os.environ)
    assert (ended(paths)["state"], ended(paths)["exit_code"]) == ("FAILED", 139)


def test_the_time_limit_ends_the_run_and_everything_it_started(make_run: MakeRun) -> None:
    paths = make_run("(trap '' TERM; sleep 300 & echo $! > here; wait) & sleep 300", time_limit_s=1)
    subprocess_kill_wait(paths, "0.5")
    end = ended(paths)
    assert end["state"] == "TIMEOUT"
    assert not psutil.pid_exists(started(paths))


def subprocess_kill_wait(paths: runs.RunPaths, seconds: str) -> None:
    """Start a supervisor that has less patience than a real one."""
    process = subprocess.Popen(
        [sys.executable, "-m", "coach.launch.local", str(paths.run_dir), "--kill-wait", seconds],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    process.wait(30)


def test_the_signal_comes_before_the_limit_and_a_leaving_script_has_timed_out(make_run: MakeRun) -> None:
    paths = make_run(
        "trap 'echo saved > saved; exit 1' USR1\nsleep 300 & wait", time_limit_s=60, signal="USR1@59"
    )
    local.start(paths.run_dir, os.environ)
    assert (ended(paths)["state"], ended(paths)["exit_code"]) == ("TIMEOUT", 1)
    assert (paths.run_dir / "saved").exists()


def test_too_much_memory_in_any_process_is_out_of_memory(make_run: MakeRun) -> None:
    code = "import signal; x = bytearray(200 << 20); signal.pause()"
    paths = make_run(f"{sys.executable} -c '{code}' & wait", mem="100M")
    local.start(paths.run_dir, os.environ)
    assert (ended(paths)["state"], ended(paths)["exit_code"]) == ("OUT_OF_MEMORY", 137)


def test_a_run_within_its_memory_is_left_alone(make_run: MakeRun) -> None:
    paths = make_run("sleep 1.2", mem="100M")
    local.start(paths.run_dir, os.environ)
    assert ended(paths)["state"] == "COMPLETED"


def test_cancel_ends_the_run_and_everything_it_started(make_run: MakeRun) -> None:
    paths = make_run("setsid sleep 300 & echo $! > here; wait")
    local.start(paths.run_dir, os.environ)
    child = started(paths)
    local.cancel(paths.run_dir)
    assert ended(paths)["state"] == "CANCELLED"
    assert not psutil.pid_exists(child)


def test_a_run_that_is_cancelled_before_its_supervisor_listens_was_cancelled(make_run: MakeRun) -> None:
    paths = make_run("sleep 300")
    local.start(paths.run_dir, os.environ)
    local.cancel(paths.run_dir)
    assert ended(paths)["state"] == "CANCELLED"


def test_an_ended_run_is_not_cancelled_again(make_run: MakeRun) -> None:
    paths = make_run("true")
    local.start(paths.run_dir, os.environ)
    ended(paths)
    with pytest.raises(UserError, match="nothing of this run is running"):
        local.cancel(paths.run_dir)


def test_a_run_survives_the_end_of_the_coach_that_started_it(make_run: MakeRun) -> None:
    paths = make_run("echo $$ > here; until [ -e go ]; do sleep 0.05; done")
    code = (
        "import os; from coach.launch import local; from pathlib import Path; "
        f"local.start(Path({str(paths.run_dir)!r}), os.environ); os.kill(os.getpid(), 9)"
    )
    starter = subprocess.run([sys.executable, "-c", code])
    assert starter.returncode == -signal.SIGKILL
    started(paths)
    assert is_alive(runs.read_json(paths.run_json))
    (paths.run_dir / "go").touch()
    assert ended(paths)["state"] == "COMPLETED"


def test_a_supervisor_that_was_killed_leaves_no_run_behind_that_seems_to_run(make_run: MakeRun) -> None:
    paths = make_run("trap 'kill $child; exit 143' TERM; sleep 300 & child=$!; echo $child > here; wait")
    local.start(paths.run_dir, os.environ)
    child = started(paths)
    wait_until(lambda: runs.read_json(paths.run_json)["state"] == "RUNNING", what="it is running")
    supervisor = find_supervisor(runs.read_json(paths.run_json))
    assert supervisor is not None
    supervisor.kill()
    wait_until(lambda: state_of(runs.read_json(paths.run_json)) == "NODE_FAIL", what="its end is unknown")
    wait_until(lambda: not psutil.pid_exists(child), what="its processes have ended")


def test_a_process_number_that_was_given_to_another_process_is_never_signalled(make_run: MakeRun) -> None:
    paths = make_run("true")
    bystander = subprocess.Popen(["sleep", "300"])
    try:
        said = {"pid": bystander.pid, "create_time_s": psutil.Process(bystander.pid).create_time() - 100.0}
        runs.update_json(
            paths.run_json, {"state": "RUNNING", "supervisor": {**said, "node": os.uname().nodename}}
        )
        with pytest.raises(UserError):
            local.cancel(paths.run_dir)
        assert state_of(runs.read_json(paths.run_json)) == "NODE_FAIL"
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_run_of_another_machine_is_neither_judged_nor_cancelled(make_run: MakeRun) -> None:
    paths = make_run("true")
    said = {"pid": os.getpid(), "create_time_s": psutil.Process().create_time(), "node": "another-machine"}
    runs.update_json(paths.run_json, {"state": "RUNNING", "supervisor": said})
    assert state_of(runs.read_json(paths.run_json)) == "RUNNING"
    with pytest.raises(UserError) as caught:
        local.cancel(paths.run_dir)
    assert caught.value.message == f"{paths.run_dir.name}: it is on another-machine, not visible from here"
    assert "ends it there" in (caught.value.hint or "")


def test_after_a_restart_of_the_machine_its_runs_have_failed_with_the_node(make_run: MakeRun) -> None:
    paths = make_run("true")
    said = {**identify(psutil.Process()), "boot_id": "11111111-2222-3333-4444-555555555555"}
    runs.update_json(paths.run_json, {"state": "RUNNING", "supervisor": said})
    seen = look(runs.read_json(paths.run_json))
    assert (seen.state, seen.reason, seen.is_visible) == ("NODE_FAIL", MACHINE_RESTARTED, True)
    with pytest.raises(UserError, match="nothing of this run is running"):
        local.cancel(paths.run_dir)


def test_a_supervisor_records_its_node_and_boot_id(make_run: MakeRun) -> None:
    paths = make_run("true")
    local.start(paths.run_dir, os.environ)
    ended(paths)
    said = runs.read_json(paths.run_json)["supervisor"]
    assert (said["node"], said["boot_id"]) == (os.uname().nodename, runs.boot_id())
    assert said["boot_id"]


def test_a_child_run_waits_for_the_end_of_its_parent(make_run: MakeRun) -> None:
    parent = make_run("echo $$ > here; until [ -e go ]; do sleep 0.05; done")
    child = make_run("true")
    local.start(parent.run_dir, os.environ)
    started(parent)
    local.start(child.run_dir, os.environ, after=parent.run_dir)
    wait_until(
        lambda: runs.read_json(child.run_json).get("reason") == "Dependency", what="the child is waiting"
    )
    assert runs.read_json(child.run_json)["state"] == "PENDING"
    (parent.run_dir / "go").touch()
    assert ended(child)["state"] == "COMPLETED"
    ends = [runs.read_json(paths.run_json) for paths in (parent, child)]
    assert ends[0]["ended_time_s"] <= ends[1]["started_time_s"]


def test_a_child_waits_for_a_parent_on_another_machine_until_its_end_was_written(make_run: MakeRun) -> None:
    parent, child = make_run("true"), make_run("true")
    elsewhere = {"pid": 1, "create_time_s": 1.0, "node": "another-machine"}
    runs.update_json(parent.run_json, {"state": "RUNNING", "supervisor": elsewhere})
    local.start(child.run_dir, os.environ, after=parent.run_dir)
    wait_until(lambda: runs.read_json(child.run_json).get("reason") == "Dependency", what="it is waiting")
    runs.update_json(parent.run_json, {"state": "COMPLETED"})
    assert ended(child)["state"] == "COMPLETED"


def test_a_chain_goes_on_when_the_coach_that_started_it_was_killed(make_run: MakeRun) -> None:
    parent = make_run("echo $$ > here; until [ -e go ]; do sleep 0.05; done")
    child = make_run("true")
    code = (
        "import os; from pathlib import Path; from coach.launch import local; "
        f"parent, child = Path({str(parent.run_dir)!r}), Path({str(child.run_dir)!r}); "
        "local.start(parent, os.environ); local.start(child, os.environ, after=parent); os.kill(os.getpid(), "
        "9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    started(parent)
    wait_until(lambda: runs.read_json(child.run_json).get("reason") == "Dependency", what="it is waiting")
    (parent.run_dir / "go").touch()
    assert ended(child)["state"] == "COMPLETED"


def test_a_waiting_child_can_be_cancelled(make_run: MakeRun) -> None:
    parent, child = make_run("sleep 300"), make_run("touch ran")
    local.start(parent.run_dir, os.environ)
    local.start(child.run_dir, os.environ, after=parent.run_dir)
    wait_until(lambda: runs.read_json(child.run_json).get("reason") == "Dependency", what="it is waiting")
    local.cancel(child.run_dir)
    assert ended(child)["state"] == "CANCELLED"
    assert not (child.run_dir / "ran").exists()
