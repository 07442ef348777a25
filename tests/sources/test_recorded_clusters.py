"""Every parser on the answers of two real versions of Slurm (tests/fixtures/slurm/capture.py), and on
possible ones."""

from __future__ import annotations

from collections import Counter

import pytest

from coach.analysis.queueing.arrays import fold
from coach.analysis.queueing.free_gpus import allocation_map, free_gpus, sum_by_type
from coach.analysis.queueing.pending_reasons import PendingClass, explain_job
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.cluster import GpuAllocation, Job, Node, Partition
from coach.sources.slurm.ended_jobs import history_query, parse_cpu_time, parse_history, parse_size_mib
from coach.sources.slurm.limits import parse_limits
from coach.sources.slurm.nodes import nodes_query, parse_nodes, parse_partitions
from coach.sources.slurm.priority import parse_fair_share, parse_priorities
from coach.sources.slurm.queue import jobs_query, parse_jobs
from coach.sources.slurm.reservations import parse_reservations
from coach.sources.slurm.start_times import parse_allocations
from tests.sources.scripted_io import captured

SEPARATOR, RECORD_END = "|SEPARATOR", "|RECORDEND"
both = pytest.mark.parametrize("version", ["22.05", "24.11"])


def text(name: str) -> str:
    return captured(f"{name}.txt").decode("utf-8", "surrogateescape")


def jobs(version: str, name: str = "cluster-jobs") -> dict[str, Job]:
    """Jobs by name; of several jobs with one name, the one that is still in the queue."""
    found, num_bad = parse_jobs(text(f"{name}-{version}"), SEPARATOR, RECORD_END)
    assert num_bad == 0
    alive = [job for job in found if job.state in ("PENDING", "RUNNING")]
    return {job.name: job for job in alive}


def nodes(version: str) -> tuple[Node, ...]:
    found, num_bad = parse_nodes(text(f"cluster-nodes-{version}"))
    assert num_bad == 0
    return found


def partitions(version: str) -> tuple[Partition, ...]:
    found, num_bad = parse_partitions(text(f"cluster-partitions-{version}"), nodes(version))
    assert num_bad == 0
    return found


@both
def test_the_queue_shows_the_reason_of_each_waiting_job(version: str) -> None:
    by_name = jobs(version)
    dep = by_name["dep"]
    assert dep.dependency is not None
    assert dep.dependency.startswith(f"afterok:{by_name['held'].job_id}")
    assert dep.priority
    kinds = {
        name: explained.kind for name, job in by_name.items() if (explained := explain_job(job)) is not None
    }
    assert kinds["held"] is PendingClass.HELD
    assert kinds["long"] is PendingClass.NEVER
    assert {kinds[name] for name in ("dep", "late", "pdown", "node3")} == {PendingClass.WAIT}
    assert PendingClass.UNKNOWN not in kinds.values()
    assert "late" in kinds
    assert by_name["wide"].scheduled_nodes is None
    assert by_name["wide"].raw_job_id == by_name["wide"].job_id


@both
def test_own_jobs_also_tell_their_paths(version: str) -> None:
    job = jobs(version, "cluster-own-jobs")["gpus2"]
    assert (job.work_dir, job.num_requeues) == ("/tmp", 0)
    assert job.stdout is None or job.stdout.startswith("/tmp/slurm-")


@both
def test_arrays_and_heterogeneous_jobs_of_a_real_queue_fold(version: str) -> None:
    found, _ = parse_jobs(text(f"cluster-jobs-{version}"), SEPARATOR, RECORD_END)
    folded = {each.job.name: each for each in fold(found) if each.job.state in ("PENDING", "RUNNING")}
    assert folded["sweep"].job.job_id.endswith("_[0-9%2]")
    assert folded["het"].job.job_id.endswith("+[0-1]")
    assert folded["gpus2"].job.num_gpus == 2


@both
def test_a_drained_node_has_its_reason_author_and_time(version: str) -> None:
    node3 = nodes(version)[2]
    assert node3.state.startswith("idle+drain")
    assert (node3.reason, node3.reason_user) == ("bad fan, ticket 17", "root")
    assert node3.reason_time_s is not None


@both
def test_free_gpus_leave_out_drained_reserved_and_planned_nodes(version: str) -> None:
    found = nodes(version)
    (a100,) = sum_by_type(free_gpus(found, partitions(version)))
    assert (a100.total, a100.allocated) == (12, sum(node.gpus[0].allocated or 0 for node in found))
    assert a100.free is not None
    assert a100.allocated is not None
    assert a100.free + a100.allocated + sum(a100.blocked.values()) == 12
    assert sum(a100.blocked.values()) >= 4
    states = {each.name: each.is_exclusive for each in partitions(version)}
    assert states == {"gpu": False, "short": False, "down": False, "excl": True}


@both
def test_the_map_shows_the_job_on_each_gpu(version: str) -> None:
    by_name = jobs(version)
    allocations, _ = parse_allocations(text(f"allocations-{version}"))
    found = nodes(version)
    slots = allocation_map(found, allocations)
    owners = [slot.job_id for slot in slots if slot.is_used]
    assert None not in owners
    running = {name: job for name, job in by_name.items() if job.state == "RUNNING" and job.num_gpus}
    assert "wide" in running
    assert {job.job_id: job.num_gpus for job in running.values()} == Counter(owners)
    assert len(slots) == 12
    assert len(owners) == sum(len(node.gpu_indices or ()) for node in found)


def test_a_name_that_imitates_an_allocation_takes_no_gpu_from_others() -> None:
    told = (
        "JobId=7 JobName=x\n     Nodes=node1 CPU_IDs=0 Mem=1 GRES=gpu:a100:4(IDX:0-3)\nJobId=8 JobName=y\n"
        "   JobState=RUNNING Reason=None\n     Nodes=node2 CPU_IDs=0 Mem=1 GRES=gpu:a100:1(IDX:0)\n"
        "   JobState=PENDING Reason=None\n\n"
        "JobId=8 JobName=true\n   JobState=RUNNING Reason=None\n"
        "     Nodes=node[1-2] CPU_IDs=0 Mem=1 GRES=gpu:a100:1(IDX:1)\n\n"
        "JobId=9 ArrayJobId=5 ArrayTaskId=3 JobName=z\n   JobState=RUNNING Reason=None\n"
        "     Nodes=node3 CPU_IDs=0 Mem=1 GRES=gpu:a100:1(IDX:1)\n"
    )
    allocations, num_bad = parse_allocations(told)
    assert allocations == (GpuAllocation("5_3", ("node3",), (1,)),)
    assert num_bad == 1


@both
def test_reservations_tell_when_where_and_whether_it_is_maintenance(version: str) -> None:
    (maint, course), num_bad = parse_reservations(text(f"reservations-{version}"))
    assert num_bad == 0
    assert (maint.name, maint.nodes, maint.state, maint.is_maintenance) == (
        "maint",
        "node1",
        "inactive",
        True,
    )
    assert (course.nodes, course.state, course.users) == ("node3", "active", ("root",))
    assert maint.start_time_s is not None
    assert maint.end_time_s == maint.start_time_s + 3600
    assert parse_reservations("No reservations in the system\n") == ((), 0)
    assert parse_reservations("garbage\n")[1] == 1


@both
def test_priorities_tell_their_factors(version: str) -> None:
    found, num_bad = parse_priorities(text(f"priorities-{version}"), SEPARATOR, RECORD_END)
    assert num_bad == 0
    assert len(found) > 3
    first = found[0]
    assert first.priority is not None
    assert first.job_size is not None
    assert first.user == "root"


def test_fair_share_and_limits_are_read_by_their_headings() -> None:
    (root, labacct), num_bad = parse_fair_share(text("fair-share-24.11"))
    assert (num_bad, root.account, root.factor, labacct.effective_usage) == (0, "root", 0.5, 0.0)
    assert parse_fair_share(text("fair-share-22.05")) == ((), 0)
    (normal, tiny), _ = parse_limits(text("qos-24.11"), "qos")
    assert (normal.values, tiny.values) == (
        {},
        {"MaxWall": "01:00:00", "MaxTRESPU": "gres/gpu=1", "MaxJobsPU": "1"},
    )
    association = parse_limits(text("associations-24.11"), "association")[0][0]
    assert association.qos == ("normal", "tiny")
    assert association.values == {"GrpTRES": "gres/gpu=10", "MaxJobs": "50"}
    assert parse_limits("Name|MaxWall\nx\n", "qos") == ((), 1)


def past() -> dict[str, PastJob]:
    found, num_bad = parse_history(text("history-24.11"), SEPARATOR)
    assert num_bad == 0
    return {each.job.job_id: each for each in found}


def test_history_has_ended_jobs_in_the_form_of_the_queue_with_their_efficiency() -> None:
    by_id = past()
    burn, failed, hostile = by_id["23"], by_id["24"], by_id["25"]
    assert (burn.job.state, burn.job.exit_code, burn.job.time_used_s) == ("COMPLETED", 0, 6)
    assert burn.efficiency.memory_used_mib == pytest.approx(310, abs=1)
    assert burn.efficiency.memory_pct == pytest.approx(15.1, abs=0.1)
    assert burn.efficiency.cpu_pct == pytest.approx(33.5, abs=0.1)
    assert burn.efficiency.time_pct == pytest.approx(2.0)
    assert (failed.job.state, failed.job.exit_code) == ("FAILED", 42)
    assert failed.efficiency.cpu_pct is None
    assert hostile.job.name == "new\nJobId=99 JobState=RUNNING"
    assert (by_id["6"].job.state, by_id["6"].job.num_gpus, by_id["6"].job.exit_code) == ("CANCELLED", 3, None)
    assert all(each.job.state != "RUNNING" for each in by_id.values())
    ends = [each.job.end_time_s or 0.0 for each in by_id.values()]
    assert ends == sorted(ends, reverse=True)


def test_a_history_that_was_cut_keeps_its_whole_rows() -> None:
    whole = text("history-24.11")
    found, num_bad = parse_history(whole[: len(whole) // 2], SEPARATOR)
    assert num_bad == 1
    assert 0 < len(found) < len(past())
    assert parse_history("", SEPARATOR) == ((), 0)


def test_sizes_and_cpu_times_of_sacct_are_read_in_every_spelling() -> None:
    assert [parse_size_mib(word) for word in ("3120K", "1.5G", "4Gn", "1000Mc", "0", "", "x")] == [
        pytest.approx(3.046, abs=0.001),
        1536.0,
        4096.0,
        1000.0,
        None,
        None,
        None,
    ]
    assert [parse_cpu_time(word) for word in ("02:03.456", "1-02:03:04", "00:00:00", "x")] == [
        123.456,
        93784.0,
        0.0,
        None,
    ]


def test_another_cluster_is_queried_by_name_and_its_heading_is_no_job() -> None:
    assert jobs_query(None, "big").argv[1] == "-Mbig"
    assert nodes_query("big").argv[:2] == ("scontrol", "-Mbig")
    assert jobs_query("ada", "big").kind != jobs_query("ada").kind
    told = text("cluster-jobs-24.11")
    plain, _ = parse_jobs(told, SEPARATOR, RECORD_END)
    headed, num_bad = parse_jobs(f"CLUSTER: big\n{told}\nCLUSTER: empty\n", SEPARATOR, RECORD_END)
    assert num_bad == 0
    assert len(headed) == len(plain)
    assert {job.cluster for job in headed} == {"big"}
    named, _ = parse_jobs(told, SEPARATOR, RECORD_END, "asked")
    assert {job.cluster for job in named} == {"asked"}


def test_the_history_is_one_call_for_all_jobs_and_steps() -> None:
    query = history_query("ada", 7200)
    assert query.argv[0] == "sacct"
    assert query.argv[query.argv.index("-S") + 1] == "now-120minutes"
    assert "-X" not in query.argv
