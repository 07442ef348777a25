"""Past allocations of nodes, recorded at each look."""

from __future__ import annotations

from coach.lookback.node_past import MAX_LOOKS, NodePast
from coach.model.slurm.cluster import GpuCount, Node


def node(name: str, cpus: int | None, gpus: int | None = None) -> Node:
    return Node(name, "mixed", None, ("gpu",), 8, cpus, 1000, 500, (GpuCount("a100", 4, gpus),))


def test_a_look_is_kept_where_something_changed() -> None:
    past = NodePast()
    for time_s, cpus in ((1.0, 2), (2.0, 2), (3.0, 4), (4.0, 4)):
        past.look((node("a", cpus), node("b", 1, 2)), time_s)
    assert [(look.time_s, look.cpus) for look in past.of("a")] == [(1.0, 2), (3.0, 4)]
    assert [(look.time_s, look.gpus) for look in past.of("b")] == [(1.0, 2)]
    assert past.since_s == 1.0
    assert past.of("unknown") == ()


def test_values_that_slurm_did_not_report_stay_unknown() -> None:
    past = NodePast()
    past.look((node("a", None),), 1.0)
    assert (past.of("a")[0].cpus, past.of("a")[0].gpus) == (None, None)


def test_the_looks_of_one_node_are_bounded() -> None:
    past = NodePast()
    nodes = tuple(node(f"n{index}", 0) for index in range(MAX_LOOKS // 20))
    for time_s in range(30):
        past.look((node("a", time_s), *nodes), float(time_s))
    assert len(past.of("a")) <= 20
    assert past.of("a")[-1].time_s == 29.0
