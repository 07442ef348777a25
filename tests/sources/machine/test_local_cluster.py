from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coach.model.reading import JobList, NodeList, PartitionList, Reading
from coach.model.slurm.cluster import SUPERVISOR_DIED, GpuCount, Job, Node, Partition
from coach.sources.machine.local_cluster import KEEP_ENDED_S, KEEP_ORPHAN_S, LocalClusterSource
from coach.sources.machine.this_machine import read_machine
from coach.sources.runs.local_process import Sighting, as_recorded
from tests.sources.scripted_io import ScriptedIo, make_run

MACHINE = Node("desk", "idle", None, ("local",), 8, 0, 16000, 0, (GpuCount("H200", 2, 0),))
NOW_S = 2000.0


def run_json(**changes: Any) -> str:
    value = {
        "schema": 1,
        "recipe": "ddp",
        "backend": "local",
        "user": "ada",
        "state": "RUNNING",
        "submitted_time_s": 1890.0,
        "started_time_s": 1900.0,
        "supervisor": {"pid": 4242, "create_time_s": 1890.0, "node": socket.gethostname()},
        "resources": {
            "nproc_per_node": 2,
            "cpus_per_task": 3,
            "gpus_per_node": 1,
            "mem": "4gb",
            "time_limit_s": 600,
        },
    }
    return json.dumps({**value, **changes})


def exit_json(state: str, exit_code: int, ended_time_s: float) -> str:
    return json.dumps({"schema": 1, "state": state, "exit_code": exit_code, "ended_time_s": ended_time_s})


class Machine:
    """The source on a fake machine, and the files that it read."""

    def __init__(self, root: Path, dead: frozenset[str] = frozenset()) -> None:
        self.io = ScriptedIo({}, now_s=NOW_S)
        self.dead = dead
        self.source = LocalClusterSource(self.io, root, "ada", read_node=lambda: MACHINE, look=self._look)

    def _look(self, value: Mapping[str, Any]) -> Sighting:
        if value.get("recipe") in self.dead:
            return Sighting("NODE_FAIL", SUPERVISOR_DIED, "desk")
        if value.get("recipe") == "away":
            return Sighting(value.get("state"), None, "login2", is_visible=False)
        return as_recorded(value)

    def poll(self) -> tuple[Node, Partition, dict[str, Job], Reading]:
        nodes, partitions, jobs = self.source.poll()
        assert isinstance(nodes.payload, NodeList)
        assert isinstance(partitions.payload, PartitionList)
        assert isinstance(jobs.payload, JobList)
        by_id = {job.job_id: job for job in jobs.payload.jobs}
        return nodes.payload.nodes[0], partitions.payload.partitions[0], by_id, jobs


def test_before_the_first_launch_the_machine_is_idle_and_the_queue_empty(tmp_path: Path) -> None:
    node, partition, jobs, reading = Machine(tmp_path / "never-made").poll()
    assert node == MACHINE
    assert (partition.name, partition.is_default, partition.num_nodes_idle) == ("local", True, 1)
    assert jobs == {}
    assert reading.error is None


def test_a_running_run_is_a_job_that_takes_its_share_of_the_machine(tmp_path: Path) -> None:
    run_id = "20261121-142233-ddp-4f2a"
    make_run(tmp_path, run_id, run_json())
    node, partition, jobs, _ = Machine(tmp_path).poll()
    job = jobs[run_id]
    assert (job.name, job.user, job.state, job.nodes, job.partition) == (
        "ddp",
        "ada",
        "RUNNING",
        "desk",
        "local",
    )
    assert (job.num_cpus, job.num_gpus, job.num_nodes) == (3, 1, 1)
    assert (job.time_used_s, job.time_left_s, job.time_limit_s, job.end_time_s) == (100, 500, 600, 2500.0)
    assert job.exit_code is None
    assert (node.state, node.num_cpus_allocated, node.memory_allocated_mib) == ("mixed", 3, 4096)
    assert node.gpus == (GpuCount("H200", 2, 1),)
    assert (partition.num_nodes_idle, partition.num_gpus_per_node) == (0, 2)


def test_a_machine_whose_cpus_are_all_asked_for_is_allocated(tmp_path: Path) -> None:
    for number in range(4):
        make_run(tmp_path, f"2026112{number}-142233-ddp-4f2a", run_json())
    node, _, _, _ = Machine(tmp_path).poll()
    assert (node.state, node.num_cpus_allocated) == ("allocated", 12)


def test_an_ended_run_stays_for_a_while_is_read_once_and_then_leaves_the_queue(tmp_path: Path) -> None:
    run_id = "20261121-142233-ddp-4f2a"
    make_run(tmp_path, run_id, run_json(state="FAILED"), exit_json("FAILED", 42, 1990.0))
    machine = Machine(tmp_path)
    node, _, jobs, _ = machine.poll()
    assert (jobs[run_id].state, jobs[run_id].exit_code, jobs[run_id].time_used_s) == ("FAILED", 42, 90)
    assert (jobs[run_id].end_time_s, jobs[run_id].time_left_s) == (1990.0, None)
    assert node.state == "idle"
    num_reads = machine.io.num_reads
    machine.poll()
    assert machine.io.num_reads == num_reads
    machine.io.now_s = 1990.0 + KEEP_ENDED_S + 1
    assert machine.poll()[2] == {}


def test_a_run_that_failed_this_morning_is_still_there_in_the_evening(tmp_path: Path) -> None:
    run_id = "20261121-142233-ddp-4f2a"
    make_run(tmp_path, run_id, run_json(state="FAILED"), exit_json("FAILED", 42, 1990.0))
    machine = Machine(tmp_path)
    machine.io.now_s = 1990.0 + 10 * 3600
    assert machine.poll()[2][run_id].state == "FAILED"


def test_the_recorded_end_of_a_run_overrides_its_last_known_state(tmp_path: Path) -> None:
    run_id = "20261121-142233-ddp-4f2a"
    make_run(tmp_path, run_id, run_json(), exit_json("COMPLETED", 0, 1990.0))
    job = Machine(tmp_path, dead=frozenset({"ddp"})).poll()[2][run_id]
    assert (job.state, job.reason, job.exit_code) == ("COMPLETED", None, 0)


def test_a_run_whose_supervisor_was_killed_has_failed_with_that_reason(tmp_path: Path) -> None:
    run_id = "20261121-142233-ddp-4f2a"
    make_run(tmp_path, run_id, run_json())
    node, _, jobs, _ = Machine(tmp_path, dead=frozenset({"ddp"})).poll()
    job = jobs[run_id]
    assert (job.state, job.reason, job.exit_code) == ("NODE_FAIL", SUPERVISOR_DIED, None)
    assert job.time_used_s is None
    assert node.state == "idle"


def test_a_real_process_that_is_gone_is_noticed(tmp_path: Path) -> None:
    run_id = "20261121-142233-ddp-4f2a"
    gone = {"pid": 2**22 - 3, "create_time_s": 1890.0, "node": socket.gethostname()}
    make_run(tmp_path, run_id, run_json(supervisor=gone))
    source = LocalClusterSource(ScriptedIo({}, now_s=NOW_S), tmp_path, "ada", read_node=lambda: MACHINE)
    jobs = next(reading.payload for reading in source.poll() if reading.source == "jobs")
    assert isinstance(jobs, JobList)
    assert [job.reason for job in jobs.jobs] == [SUPERVISOR_DIED]


def test_a_run_of_another_login_node_has_its_last_state_and_uses_nothing_here(
    tmp_path: Path,
) -> None:
    run_id = "20261121-142233-away-4f2a"
    run_dir = make_run(tmp_path, run_id, run_json(recipe="away"))
    os.utime(run_dir / "run.json", (1950.0, 1950.0))
    machine = Machine(tmp_path)
    node, _, jobs, _ = machine.poll()
    job = jobs[run_id]
    assert (job.state, job.host, job.is_visible, job.last_word_time_s) == ("RUNNING", "login2", False, 1950.0)
    assert (job.nodes, job.time_used_s, job.reason) == ("login2", 50, None)
    assert (node.state, node.num_cpus_allocated) == ("idle", 0)
    machine.io.now_s = 1950.0 + KEEP_ORPHAN_S + 1
    assert machine.poll()[2] == {}


def test_a_run_of_another_login_node_that_has_ended_is_an_ended_run(tmp_path: Path) -> None:
    run_id = "20261121-142233-away-4f2a"
    make_run(tmp_path, run_id, run_json(recipe="away"), exit_json("COMPLETED", 0, 1990.0))
    job = Machine(tmp_path).poll()[2][run_id]
    assert (job.state, job.is_visible, job.last_word_time_s, job.exit_code) == ("COMPLETED", True, None, 0)


def test_slurm_s_runs_and_planned_runs_are_no_jobs_here(tmp_path: Path) -> None:
    make_run(tmp_path, "20261121-142233-ddp-4f2a", run_json(backend="slurm", job_id="17"))
    make_run(tmp_path, "20261121-142233-ddp-4f2c", run_json(state=None, supervisor=None))
    (tmp_path / "20261121-142233-ddp-4f2d").mkdir()
    (tmp_path / ".code").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    node, _, jobs, reading = Machine(tmp_path).poll()
    assert jobs == {}
    assert node.state == "idle"
    assert reading.num_bad_rows == 0


def test_a_torn_run_json_is_counted_and_hides_no_other_run(tmp_path: Path) -> None:
    make_run(tmp_path, "20261121-142233-ddp-4f2a", '{"schema": 1, "recip')
    make_run(tmp_path, "20261121-142233-ddp-4f2b", run_json())
    _, _, jobs, reading = Machine(tmp_path).poll()
    assert list(jobs) == ["20261121-142233-ddp-4f2b"]
    assert reading.num_bad_rows == 1


def test_a_runs_root_that_cannot_be_listed_is_an_error_and_not_an_empty_queue(tmp_path: Path) -> None:
    file = tmp_path / "runs"
    file.write_text("")
    readings = list(LocalClusterSource(ScriptedIo({}), file, "ada", read_node=lambda: MACHINE).poll())
    assert {reading.source for reading in readings} == {"jobs", "nodes", "partitions"}
    assert all(reading.payload is None and str(file) in (reading.error or "") for reading in readings)


def test_this_machine_has_the_cpus_this_process_may_use() -> None:
    node = read_machine()
    assert node.num_cpus == len(os.sched_getaffinity(0))
    assert node.memory_mib is not None
    assert node.memory_mib > 100


def test_runs_known_to_have_ended_long_ago_are_not_read(tmp_path: Path) -> None:
    for name in ("20261121-142233-ddp-4f2a", "20261121-142233-ddp-4f2b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("torn")
    ends = {"20261121-142233-ddp-4f2a": NOW_S - 10 * 86400, "20261121-142233-ddp-4f2b": NOW_S - 1}
    io = ScriptedIo({}, now_s=NOW_S)
    source = LocalClusterSource(io, tmp_path, "ada", read_node=lambda: MACHINE, known_ends=lambda: ends)
    (jobs,) = [reading for reading in source.poll() if reading.source == "jobs"]
    assert jobs.num_bad_rows == 1, "only the one that ended just now was read"
