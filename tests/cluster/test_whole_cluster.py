"""A real Slurm's answers about waiting jobs, nodes and GPUs, and the history that coach keeps without
accounting."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.analysis.queueing.free_gpus import allocation_map, free_gpus, sum_by_type
from coach.analysis.queueing.pending_reasons import PendingClass, PendingReason, explain_job
from coach.config import Settings
from coach.model.reading import JobList
from coach.model.slurm.cluster import Job
from coach.sources.io import SystemIo, scrubbed_environment
from coach.sources.slurm.client import Client, JobsSource, read_partitions_and_nodes
from coach.sources.slurm.priority import parse_priorities, priorities_query
from coach.sources.slurm.reservations import RESERVATIONS_QUERY, parse_reservations
from coach.sources.slurm.start_times import ALLOCATIONS_QUERY, parse_allocations
from coach.workflows.jobs.ended_jobs import read_past_jobs
from tests.cluster.slurm import SlurmCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


def io_of(slurm: SlurmCluster) -> SystemIo:
    return SystemIo(scrubbed_environment(slurm.user.env(slurm.env, {})))


def own_jobs(slurm: SlurmCluster) -> dict[str, Job]:
    (reading,) = JobsSource(io_of(slurm), "nobody", 10, is_all=False).poll()
    assert isinstance(reading.payload, JobList), reading.error
    assert reading.num_bad_rows == 0
    return {job.job_id: job for job in reading.payload.jobs}


def test_every_waiting_job_says_why_in_plain_words(slurm: SlurmCluster) -> None:
    held = slurm.submit("true", "-H")
    expected = {
        held: (PendingClass.HELD, "held"),
        slurm.submit("true", "-d", f"afterok:{held}"): (PendingClass.WAIT, f"waits for job {held}"),
        slurm.submit("true", "--begin=now+1hour"): (PendingClass.WAIT, "may not start before a time"),
        slurm.submit("true", "-N9"): (PendingClass.NEVER, "its partition"),
        slurm.submit("true", "--time=2-00"): (PendingClass.NEVER, "longer than its partition allows"),
    }

    def told() -> dict[str, PendingReason] | None:
        jobs = own_jobs(slurm)
        found = {job_id: why for job_id in expected if (why := explain_job(jobs[job_id])) is not None}
        is_settled = all(
            why.kind is expected[job_id][0] and expected[job_id][1] in why.meaning
            for job_id, why in found.items()
        )
        return found if len(found) == len(expected) and is_settled else None

    assert wait_until(told, 20, "every job says why it waits")
    # A Slurm without weights says no factors, or none but zeros; it does not fail.
    query = priorities_query("nobody")
    answer = Client(io_of(slurm)).ask(query)
    assert answer.error is None
    assert parse_priorities(answer.text, query.separator, query.record_end)[1] == 0


def test_gpus_of_drained_and_reserved_nodes_are_not_free_and_the_map_names_the_job(
    slurm: SlurmCluster,
) -> None:
    name = "x\n     Nodes=node3 CPU_IDs=0 Mem=1 GRES=gpu:a100:1(IDX:0)"
    job_id = slurm.submit("sleep 60", "-pgpu", "-w", "node2", "--gres=gpu:1", f"--job-name={name}")
    slurm.wait_state(job_id, "RUNNING")
    words = ["scontrol", "create", "reservation", "reservationname=course", "starttime=now", "duration=10"]
    slurm.run(["scontrol", "update", "nodename=node1", "state=drain", "reason=fan"], as_root=True)
    made = slurm.run([*words, "nodes=node3", "users=root"], as_root=True)
    assert made.returncode == 0, made.stderr
    try:
        io = io_of(slurm)
        partitions, nodes, _ = wait_until(
            lambda: (
                found
                if "reserved" in (found := read_partitions_and_nodes(io))[1][2].state
                and found[1][1].gpu_indices == (0,)
                else None
            ),
            20,
            "node3 is reserved, and node2 tells its GPU in use",
        ) or ((), (), "")
        (a100,) = sum_by_type(free_gpus(nodes, partitions))
        assert (a100.total, a100.allocated, a100.free) == (6, 1, 1)
        assert sorted(a100.blocked.values()) == [2, 2]
        assert (nodes[0].reason, nodes[0].reason_user) == ("fan", "root")
        allocations, _ = parse_allocations(Client(io).ask(ALLOCATIONS_QUERY).text)
        used = [
            (slot.node, slot.index, slot.job_id)
            for slot in allocation_map(nodes, allocations)
            if slot.is_used
        ]
        assert used == [("node2", 0, job_id)]
        (course,), num_bad = parse_reservations(Client(io).ask(RESERVATIONS_QUERY).text)
        assert (course.name, course.nodes, course.state, num_bad) == ("course", "node3", "active", 0)
    finally:
        slurm.run(["scontrol", "delete", "reservationname=course"], as_root=True)


def test_without_accounting_the_history_holds_the_jobs_seen_in_the_queue(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    settings = Settings(tmp_path / "runs", tmp_path / "cache", tmp_path / "config")
    job_id = slurm.submit("exit 42", "--job-name=seen once")
    slurm.wait_state(job_id, "FAILED")
    io = io_of(slurm)
    past = read_past_jobs(settings, io, "nobody", "slurm", past_s=3600.0, limit=50)
    assert any("accounting" in note for note in past.notes)
    known = next(each for each in past.jobs if each.job.job_id == job_id)
    assert (known.source, known.job.state, known.job.exit_code) == ("seen", "FAILED", 42)
    assert known.job.work_dir == str(slurm.user.home)
    assert known.efficiency.time_pct is not None
