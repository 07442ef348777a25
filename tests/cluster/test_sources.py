"""The sources and their commands against the real Slurm, as an ordinary user sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coach.model.errors import UserError
from coach.model.reading import JobList, Reading
from coach.model.slurm.cluster import Job, Node
from coach.sources.io import SystemIo, scrubbed_environment
from coach.sources.slurm.client import JobsSource, read_partitions_and_nodes
from tests.cluster.slurm import SlurmCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

HOSTILE_NAMES = (
    "a|b",
    "two\nJobId=1 JobState=FAILED",
    "\x1b[31mred",
    "[bold red]x[/]",
    "[@click=app.quit]x[/]",
)


def io_of(slurm: SlurmCluster) -> SystemIo:
    # A user's own output formats must not change the sources' answers.
    odd = {"SQUEUE_FORMAT": "%i", "SLURM_TIME_FORMAT": "%s", "SQUEUE_STATES": "RUNNING"}
    return SystemIo(scrubbed_environment(slurm.user.env(slurm.env, odd)))


def jobs_of(source: JobsSource) -> dict[str, Job]:
    (reading,) = source.poll()
    assert reading.error is None
    assert reading.num_bad_rows == 0
    assert isinstance(reading.payload, JobList)
    return {job.job_id: job for job in reading.payload.jobs}


def test_the_queue_of_a_user_with_every_kind_of_job(slurm: SlurmCluster) -> None:
    source = JobsSource(io_of(slurm), "nobody", 10)
    running = slurm.submit("sleep 60", "-pgpu", "-N2", "--gres=gpu:1", "--time=5")
    asked = [
        slurm.submit("true", "-H", "-pgpu", option, *more)
        for option, more in (
            ("--gpus=3", ("-N2",)),
            ("--gpus-per-node=2", ("-N2",)),
            ("--gpus-per-task=1", ("-n4",)),
        )
    ]
    array = slurm.submit("true", "-H", "--array=0-9%2")
    named = [slurm.submit("true", "-H", f"--job-name={name}") for name in HOSTILE_NAMES]
    ended = slurm.submit("exit 42")
    slurm.wait_state(running, "RUNNING")
    slurm.wait_state(ended, "FAILED")
    jobs = jobs_of(source)
    assert (jobs[running].num_gpus, jobs[running].num_nodes, jobs[running].time_limit_s) == (2, 2, 300)
    assert [jobs[job_id].num_gpus for job_id in asked] == [3, 4, 4]
    assert jobs[f"{array}_[0-9%2]"].reason == "JobHeldUser"
    assert tuple(jobs[job_id].name for job_id in named) == HOSTILE_NAMES
    assert (jobs[ended].state, jobs[ended].exit_code) == ("FAILED", 42)
    own = jobs_of(JobsSource(io_of(slurm), "nobody", 10, is_all=False))
    mine = {running, *asked, f"{array}_[0-9%2]", *named, ended}
    assert mine <= jobs.keys()
    assert mine <= own.keys()


def test_nodes_show_allocated_gpus_and_a_hostile_drain_reason(slurm: SlurmCluster) -> None:
    job_id = slurm.submit("sleep 60", "-pgpu", "-w", "node2", "--gres=gpu:1")
    slurm.wait_state(job_id, "RUNNING")
    reason = "fan State=IDLE CPUTot=1\nNodeName=node9 State=IDLE"
    drained = slurm.run(
        ["scontrol", "update", "nodename=node1", "state=drain", f"reason={reason}"], as_root=True
    )
    assert drained.returncode == 0, drained.stderr

    def look() -> dict[str, Node] | None:
        nodes = {node.name: node for node in read_partitions_and_nodes(io_of(slurm))[1]}
        return nodes if nodes["node2"].gpus[0].allocated == 1 else None

    nodes = wait_until(look, 10, "node2 shows its allocated GPU")
    assert nodes is not None
    assert set(nodes) == {"node1", "node2", "node3"}
    assert (nodes["node1"].state, nodes["node1"].reason, nodes["node1"].num_cpus) == (
        "idle+drain",
        reason,
        16,
    )
    assert nodes["node2"].gpus[0].total == 2
    partitions = {each.name: each for each in read_partitions_and_nodes(io_of(slurm))[0]}
    assert (partitions["cpu"].is_default, partitions["cpu"].num_gpus_per_node) == (True, 0)
    assert (partitions["gpu"].num_gpus_per_node, partitions["gpu"].num_nodes_idle) == (2, 1)
    assert (partitions["gpu"].gpus[0].total, partitions["gpu"].gpus[0].allocated) == (6, 1)


def test_a_killed_controller_is_reported_and_the_source_recovers_by_itself(slurm: SlurmCluster) -> None:
    source = JobsSource(io_of(slurm), "nobody", 10)
    jobs_of(source)
    slurm.kill_controller()
    words = "Unable to contact slurm controller (connect failure)"

    def poll() -> Reading:
        (reading,) = source.poll()
        return reading

    assert poll().error == words
    probed = poll()
    assert probed.error == words
    assert probed.duration_s < 3.0
    with pytest.raises(UserError, match="Unable to contact slurm controller"):
        read_partitions_and_nodes(io_of(slurm))
    slurm.start_controller()
    wait_until(lambda: poll().error is None, 15, "the queue is read again")


def test_the_commands_answer_in_json(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from coach import cli

    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    monkeypatch.setenv("COACH_HOME", str(tmp_path))
    job_id = slurm.submit("true", "-H", "--job-name=theirs")

    def ask(name: str, *options: str) -> list[dict[str, Any]]:
        command: Callable[[], int] = lambda: cli.run_command(name, [*options, "--format", "json"])  # noqa: E731 (guarded takes a call)
        assert cli.guarded(command) == 0
        items: list[dict[str, Any]] = json.loads(capsys.readouterr().out)[name]
        return items

    assert job_id in {job["job_id"] for job in ask("jobs", "--all")}
    assert [node["num_gpus"] for node in ask("nodes")] == [2, 2, 2]
    assert {each["name"] for each in ask("partitions")} == {"cpu", "gpu"}
