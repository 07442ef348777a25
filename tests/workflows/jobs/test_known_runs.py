"""Corrections of a run's directory by the queue, and runs that may be alive."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from coach import runs
from coach.model.training.run import Submission
from coach.node import own_run
from coach.sources.runs.local_process import identify
from coach.workflows.jobs.known_runs import KnownRun, read_known_runs
from tests.waiting import wait_until
from tests.workflows.known import NOW_S, World

RUN = f"20261121-142233-ddp-{os.getpid() % 0x10000:04x}"
"""A run id of this process only: other processes of the suite run processes of runs too."""
OTHER = "20261121-142234-ddp-4f2b"
LATER = "2026-11-30T12:00:00"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def only(world: World) -> KnownRun:
    (one,) = read_known_runs(world.settings, world, "ada").runs
    return one


def test_a_run_whose_node_failed_is_shown_as_slurm_says(world: World) -> None:
    world.make(RUN, "RUNNING")
    world.queue({"job_id": "17", "state": "NODE_FAIL", "submit": LATER})
    one = only(world)
    assert (one.run.state, one.alive_because, one.is_forgotten) == ("NODE_FAIL", None, False)


def test_a_run_that_is_queued_again_is_alive_whatever_its_directory_says(world: World) -> None:
    world.make(RUN, "FAILED")
    world.queue({"job_id": "17", "state": "PENDING", "submit": LATER})
    (one,) = read_known_runs(world.settings, world, "ada", lambda run: True).runs
    assert (one.run.state, one.alive_because) == ("PENDING", "job 17 is PENDING")


def test_the_queue_is_asked_once_for_all_and_not_for_runs_that_have_ended(world: World) -> None:
    world.make(RUN)
    assert only(world).alive_because is None
    assert world.num_asked == 0
    world.make(OTHER, "RUNNING", job_id="18")
    world.queue({"job_id": "18", "submit": LATER})
    known = read_known_runs(world.settings, world, "ada")
    assert [one.run.state for one in known.runs] == ["RUNNING", "COMPLETED"]
    assert world.num_asked == 1


def test_a_job_that_slurm_has_forgotten_has_no_known_state(world: World) -> None:
    world.make(RUN, "RUNNING")
    one = only(world)
    assert (one.run.state, one.alive_because, one.is_forgotten) == (None, None, True)


@pytest.mark.parametrize("row", ["17_[1-3%1]", "17_[1,3,5-9]", "17_[1,200-", "17_[1,...]"])
def test_a_waiting_task_of_an_array_is_found_in_the_row_that_it_shares(world: World, row: str) -> None:
    world.make(RUN, "PENDING", job_id="17_3")
    world.queue(
        {"job_id": "17_0", "state": "COMPLETED", "submit": LATER},
        {"job_id": row, "state": "PENDING", "submit": LATER},
    )
    one = only(world)
    assert (one.run.state, one.alive_because) == ("PENDING", "job 17_3 is PENDING")


def test_a_task_that_is_in_no_row_of_its_array_is_forgotten(world: World) -> None:
    world.make(RUN, "PENDING", job_id="17_4")
    world.queue({"job_id": "17_[1-3%1]", "state": "PENDING", "submit": LATER})
    assert only(world).is_forgotten


def test_a_row_that_cannot_be_read_may_be_any_run_s_job(world: World) -> None:
    world.make(RUN, "PENDING")
    world.queue({"job_id": "#17", "state": "PENDING", "submit": LATER})
    one = only(world)
    assert (one.run.state, one.is_forgotten) == ("PENDING", False)
    assert one.alive_because == "1 row of the queue cannot be read: it may be the run's job"


def test_a_job_number_that_began_again_is_not_the_run_s(world: World) -> None:
    world.make(RUN, "RUNNING")
    world.queue({"job_id": "17", "state": "RUNNING", "submit": "2026-01-01T12:00:00"})
    assert only(world).is_forgotten


def test_a_silent_controller_leaves_the_state_and_counts_as_alive(world: World) -> None:
    world.make(RUN, "RUNNING")
    world.rows = None
    known = read_known_runs(world.settings, world, "ada")
    assert known.runs[0].run.state == "RUNNING"
    assert "the queue does not answer" in (known.runs[0].alive_because or "")
    assert "Unable to contact" in (known.queue_error or "")


def test_without_an_answer_from_slurm_a_run_that_ended_an_hour_ago_may_be_requeued(world: World) -> None:
    world.make(RUN, age_s=3600.0)
    world.make(OTHER)
    world.rows = None
    recent, old = read_known_runs(world.settings, world, "ada", lambda run: True).runs
    assert "may have been requeued" in (recent.alive_because or "")
    assert old.alive_because is None


def test_another_cluster_s_run_is_not_judged_by_this_queue(world: World) -> None:
    world.make(RUN, "RUNNING", cluster="lion")
    world.queue({"job_id": "17", "state": "FAILED", "submit": LATER})
    one = only(world)
    assert one.run.state == "RUNNING"
    assert "cluster lion" in (one.alive_because or "")


def test_the_name_of_a_cluster_may_be_written_with_capitals_in_slurm_conf(world: World) -> None:
    world.settings = replace(world.settings, cluster="Tiger")
    world.make(RUN, "RUNNING")
    world.queue({"job_id": "17", "state": "NODE_FAIL", "submit": LATER})
    assert only(world).run.state == "NODE_FAIL"


def test_a_job_that_was_submitted_inside_an_array_task_is_not_that_task(world: World) -> None:
    """It inherited the variables of the task, and so its number: only the raw job id is its own."""
    world.make(RUN, "RUNNING", job_id="17_3", raw_job_id="99")
    task = {"job_id": "17_3", "raw_job_id": "20", "state": "COMPLETED", "submit": LATER}
    world.queue(task, {"job_id": "99", "raw_job_id": "99", "state": "RUNNING", "submit": LATER})
    assert (only(world).run.state, only(world).alive_because) == ("RUNNING", "job 99 is RUNNING")
    world.queue({**task, "state": "RUNNING"})
    assert (only(world).alive_because, only(world).is_forgotten) == (None, True)
    world.queue({"job_id": "17_[3-9]", "raw_job_id": "17", "state": "PENDING", "submit": LATER})
    assert only(world).alive_because == "job 17_3 is PENDING"


def test_without_names_of_clusters_a_run_that_still_writes_counts_as_alive(world: World) -> None:
    world.without_cluster_name()
    run_dir = world.make(RUN, "RUNNING")
    assert only(world).alive_because is None
    (run_dir / "telemetry").mkdir()
    (run_dir / "telemetry" / "node1.jsonl").touch()
    os.utime(run_dir / "telemetry" / "node1.jsonl", (NOW_S, NOW_S))
    one = only(world)
    assert (one.run.state, one.alive_because) == (None, "node1.jsonl was written within the last day")


def test_a_run_that_is_being_launched_is_alive(world: World) -> None:
    world.make(RUN, "PENDING", age_s=5.0, job_id=None)
    assert only(world).alive_because == "it was launched a moment ago"


def test_a_submission_that_had_no_answer_is_known_by_the_file_that_its_job_writes_to(world: World) -> None:
    run_dir = world.make(RUN, "PENDING", job_id=None)
    twin = world.make(OTHER, "PENDING", job_id=None)
    output = str(runs.scheduler_logs(run_dir.parent, RUN)[0])
    world.queue(
        {"job_id": "98", "state": "PENDING", "name": "ddp", "submit": LATER, "stdout": "/home/ada/other.out"},
        {"job_id": "99", "state": "PENDING", "name": "ddp", "submit": LATER, "stdout": output},
    )
    known = {one.run.run_id: one for one in read_known_runs(world.settings, world, "ada").runs}
    one, other = known[RUN], known[OTHER]
    assert (one.run.job_id, one.run.state, one.alive_because) == ("99", "PENDING", "job 99 is PENDING")
    assert runs.read_json(run_dir / "run.json")["job_id"] == "99"
    # The other run has the same recipe, and no job belongs to it.
    assert (other.run.job_id, other.run.state, other.run.submission) == (None, None, Submission.NOT_QUEUED)
    assert runs.read_json(twin / "run.json")["job_id"] is None
    assert world.num_asked == 1


def test_without_an_answer_from_slurm_a_submission_may_be_queued(world: World) -> None:
    world.make(RUN, "PENDING", job_id=None)
    world.rows = None
    one = only(world)
    assert one.run.submission is Submission.UNKNOWN
    assert "it may be queued: Slurm does not answer" in (one.alive_because or "")


def test_a_job_is_not_written_down_while_its_launcher_lives_to_do_it(world: World) -> None:
    run_dir = world.make(RUN, "PENDING", job_id=None, launcher=identify(psutil.Process()))
    output = str(runs.scheduler_logs(run_dir.parent, RUN)[0])
    world.queue({"job_id": "99", "state": "PENDING", "submit": LATER, "stdout": output})
    assert only(world).run.job_id == "99"
    assert runs.read_json(run_dir / "run.json")["job_id"] is None


def test_a_run_whose_launcher_lives_is_being_launched(world: World) -> None:
    world.make(RUN, "PENDING", age_s=900.0, job_id=None, launcher=identify(psutil.Process()))
    one = only(world)
    assert (one.run.state, one.run.submission) == ("PENDING", Submission.LAUNCHING)
    assert one.alive_because == "its launch is under way: sbatch has not answered yet"


def test_a_local_run_of_another_machine_cannot_be_judged_from_here(world: World) -> None:
    supervisor = {"pid": 2, "create_time_s": 1.0, "node": "login2"}
    world.make(RUN, "RUNNING", backend="local", job_id=RUN, supervisor=supervisor)
    assert only(world).alive_because == "it is on login2, not visible from here"
    assert world.num_asked == 0


def test_a_local_run_is_alive_as_long_as_its_supervisor_is(world: World) -> None:
    here = psutil.Process(os.getpid())
    world.make(RUN, "RUNNING", backend="local", job_id=RUN, supervisor=identify(here))
    assert only(world).alive_because == "it is RUNNING on this machine"


def test_a_local_run_whose_supervisor_died_has_ended(world: World) -> None:
    gone = {**identify(psutil.Process(os.getpid())), "create_time_s": 1.0}
    world.make(RUN, "RUNNING", backend="local", job_id=RUN, supervisor=gone)
    one = only(world)
    assert (one.run.state, one.alive_because) == ("NODE_FAIL", None)


def orphan(world: World, **said: object) -> Path:
    """A run whose supervisor was killed."""
    gone = {**identify(psutil.Process(os.getpid())), "create_time_s": 1.0}
    return world.make(RUN, "RUNNING", backend="local", job_id=RUN, supervisor=gone, **said)


@pytest.fixture
def command() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_a_run_goes_on_while_its_command_outlives_the_supervisor(
    world: World, command: subprocess.Popen[bytes]
) -> None:
    orphan(world, process=own_run.identify(command.pid))
    one = only(world)
    assert (one.run.state, one.alive_because) == ("RUNNING", "it is RUNNING on this machine")
    command.kill()
    command.wait()
    one = only(world)
    assert (one.run.state, one.alive_because) == ("NODE_FAIL", None)


@pytest.mark.parametrize("said", [{"start_ticks": 1}, {"boot_id": "an earlier boot"}])
def test_a_number_that_was_given_to_another_process_is_not_the_command(
    world: World, command: subprocess.Popen[bytes], said: dict[str, object]
) -> None:
    orphan(world, process={**own_run.identify(command.pid), **said})
    one = only(world)
    assert (one.run.state, one.alive_because) == ("NODE_FAIL", None)


def test_a_run_of_another_container_cannot_be_judged_from_here(
    world: World, command: subprocess.Popen[bytes]
) -> None:
    orphan(world, process={**own_run.identify(command.pid), "pid_namespace": "pid:[1]"})
    assert only(world).alive_because == f"it is on {os.uname().nodename}, not visible from here"


def test_a_run_without_a_recorded_command_is_alive_while_it_writes(world: World) -> None:
    run_dir = orphan(world)
    os.utime(run_dir / "run.json", (NOW_S - 60, NOW_S - 60))
    why = "run.json does not name the process of its command, and run.json was written within the last day"
    assert only(world).alive_because == why


@pytest.mark.parametrize("state", ["COMPLETED", "RUNNING"])
def test_a_process_that_the_command_left_behind_keeps_the_run(world: World, state: str) -> None:
    """The command has ended; its background process, in a session of its own, has not."""
    gone = {**own_run.identify(os.getpid()), "start_ticks": 1}
    if state == "RUNNING":
        orphan(world, process=gone)
    else:
        world.make(RUN, state, backend="local", job_id=RUN, process=gone)
    left = subprocess.Popen(["sleep", "600"], env={"COACH_RUN_ID": RUN}, start_new_session=True)
    environment = Path("/proc", str(left.pid), "environ")
    try:
        # The kernel shows it a moment after Popen has returned.
        wait_until(lambda: b"COACH_RUN_ID" in environment.read_bytes(), 10.0, "it has its environment")
        assert only(world).alive_because == f"its process {left.pid} is running"
    finally:
        left.kill()
        left.wait()


def test_a_command_without_a_supervisor_is_alive_while_its_sampler_writes(world: World) -> None:
    run_dir = world.make(RUN, "RUNNING", backend="local", job_id=RUN)
    assert only(world).alive_because is None
    os.utime(run_dir / "run.json", (NOW_S - 60, NOW_S - 60))
    assert only(world).alive_because == "run.json was written within the last day"
