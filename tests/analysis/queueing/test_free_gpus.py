from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.queueing.free_gpus import allocation_map, free_by_partition, free_gpus, sum_by_type
from coach.model.slurm.cluster import GpuAllocation, GpuCount, Node, Partition


def node(name: str, state: str, allocated: int | None, *, kind: str | None = "a100", **more: object) -> Node:
    values: dict[str, object] = {"cpus": 4, "partitions": ("gpu",), "indices": None, **more}
    gpus = (GpuCount(kind, 4, allocated),)
    return Node(
        name, state, None, values["partitions"], 16, values["cpus"], 64000, 0, gpus, gpu_indices=values["indices"]  # type: ignore[arg-type]
    )  # fmt: skip


def partition(name: str, state: str = "up", *, is_exclusive: bool = False) -> Partition:
    return Partition(name, True, state, None, None, 1, 1, None, None, (), 4, is_exclusive=is_exclusive)


def test_a_gpu_is_free_only_if_a_job_could_start_on_it_now() -> None:
    nodes = (
        node("n1", "mixed", 1),
        node("n2", "mixed+drain", 1),
        node("n3", "idle+reserved", 0),
        node("n4", "mixed", 2, cpus=16),
        node("n5", "allocated", 4, cpus=16),
        node("n6", "idle+maint", 0),
    )
    (a100,) = sum_by_type(free_gpus(nodes))
    assert (a100.total, a100.allocated, a100.free, a100.largest_free, a100.num_nodes_free) == (24, 8, 3, 3, 1)
    assert a100.blocked == {
        "it is drained: it takes no new jobs": 3,
        "it is kept for a reservation": 4,
        "all its CPUs are in use": 2,
        "it is reserved for maintenance": 4,
    }
    assert a100.allocated + a100.free + sum(a100.blocked.values()) == a100.total


def test_gpus_of_a_closed_partition_or_of_a_node_that_one_job_has_whole_are_not_free() -> None:
    closed = free_gpus([node("n1", "idle", 0)], [partition("gpu", "down")])
    whole = free_gpus([node("n1", "mixed", 1)], [partition("gpu", is_exclusive=True)])
    either = free_gpus(
        [node("n1", "mixed", 1, partitions=("gpu", "open"))],
        [partition("gpu", is_exclusive=True), partition("open")],
    )
    assert [each.free for each in (*closed, *whole, *either)] == [0, 0, 3]
    assert closed[0].why_not == "partition gpu is down"
    assert whole[0].why_not == "a job has the whole node"


def test_a_node_in_two_partitions_is_free_in_the_one_that_takes_jobs() -> None:
    gpus = (GpuCount("a100", 4, 1),)
    partitions = [replace(partition("gpu"), gpus=gpus), replace(partition("old", "drain"), gpus=gpus)]
    free = free_by_partition([node("n1", "mixed", 1, partitions=("gpu", "old", "cpu"))], partitions)
    assert {name: types[0].free for (_, name), types in free.items()} == {"gpu": 3, "old": 0}
    assert free[None, "old"][0].blocked == {"partition old is drain": 3}


def test_an_unknown_number_of_gpus_is_neither_free_nor_zero() -> None:
    (unknown,) = free_gpus([node("n1", "idle", None)])
    assert unknown.free is None
    sums = sum_by_type(free_gpus([node("n1", "idle", None), node("n2", "idle", 0)]))
    assert (sums[0].free, sums[0].allocated, sums[0].largest_free) == (None, None, 4)


def test_types_are_counted_apart_the_most_frequent_first() -> None:
    nodes = [node("n1", "idle", 0, kind="h100"), node("n2", "idle", 0), node("n3", "mixed", 3)]
    sums = sum_by_type(free_gpus(nodes))
    assert [(each.type, each.free) for each in sums] == [("a100", 5), ("h100", 4)]


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ([("17", ("n1",), (0, 1))], ["17", "17", None, None]),
        ([("17", ("n1",), (0,)), ("18", ("n1",), (1, 3))], ["17", "18", None, None]),
        ([("17", ("n1",), (0,)), ("18", ("n1",), (0,))], [None, None, None, None]),
        ([("17", ("n9",), (0,))], [None, None, None, None]),
    ],
)
def test_a_gpu_belongs_to_the_one_job_that_has_it_and_only_if_the_node_says_it_is_used(
    claims: list[tuple[str, tuple[str, ...], tuple[int, ...]]], expected: list[str | None]
) -> None:
    allocations = [GpuAllocation(job_id, names, idx) for job_id, names, idx in claims]
    slots = allocation_map([node("n1", "mixed", 2, indices=(0, 1))], allocations)
    assert [slot.job_id for slot in slots] == expected
    assert [slot.is_used for slot in slots] == [True, True, False, False]
