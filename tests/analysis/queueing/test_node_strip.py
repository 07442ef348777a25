"""The nodes by the type of their GPUs."""

from __future__ import annotations

from coach.analysis.queueing.node_strip import CPUS, strips_of
from coach.model.slurm.cluster import GpuCount, Node, Partition

GPU = Partition("gpu", True, "up", None, None, 4, 0, 32, 8, (), 8)


def node(name: str, *gpus: GpuCount, state: str = "mixed", num_cpus: int = 8) -> Node:
    return Node(name, state, None, ("gpu",), num_cpus, 2, 1000, 0, gpus)


def test_types_come_by_size_and_nodes_without_gpus_are_counted_by_their_cpus() -> None:
    nodes = (
        node("c1"),
        node("a1", GpuCount("a100", 4, 1)),
        node("h1", GpuCount("h100", 16, 16)),
        node("a2", GpuCount("a100", 4, 0), state="down"),
    )
    h100, a100, cpus = strips_of(nodes, (GPU,))
    assert (h100.kind, h100.total, h100.allocated, h100.free) == ("h100", 16, 16, 0)
    assert (a100.kind, a100.total, a100.allocated, a100.free, a100.num_blocked) == ("a100", 8, 1, 3, 4)
    assert (cpus.kind, cpus.has_gpus, cpus.total, cpus.allocated, cpus.free) == (CPUS, False, 8, 2, 6)
    assert a100.places == {"a1": 0, "a2": 1}


def test_a_value_that_slurm_omits_is_unknown_and_not_free() -> None:
    (strip,) = strips_of((node("a1", GpuCount(None, 4, None)),), (GPU,))
    assert (strip.kind, strip.allocated, strip.free) == (None, None, None)
