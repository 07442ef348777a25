"""The filter language on nodes."""

from __future__ import annotations

import pytest

from coach.analysis.query.language import in_order
from coach.analysis.query.node_fields import node_vocabulary
from coach.model.errors import UserError
from coach.model.slurm.cluster import GpuCount, Node
from coach.sources.slurm.node_sets import expand_nodes


def node(name: str, state: str, gpus: int = 0, reason: str | None = None) -> Node:
    counts = (GpuCount("a100", gpus, 0),) if gpus else ()
    return Node(name, state, reason, ("gpu", "all") if gpus else ("all",), 8, 0, 1000, 0, counts)


NODES = [
    node("gpu10", "idle", 4),
    node("gpu2", "mixed+drain", 8, "bad fan"),
    node("cpu1", "allocated"),
    node("cpu2", "idle*"),
]
VOCABULARY = node_vocabulary(lambda each: {"gpu10": 4, "gpu2": 0}.get(each.name), expand_nodes)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("state:idle", ["gpu10", "cpu2"]),
        ("state:alloc", ["cpu1"]),
        ("state:mix state:drain", ["gpu2"]),
        ("state:not_resp", ["cpu2"]),
        ("free:>0", ["gpu10"]),
        ("gpu:>=4 part:gpu", ["gpu10", "gpu2"]),
        ("type:a100 -free:0", ["gpu10"]),
        ("node:gpu[1-10]", ["gpu10", "gpu2"]),
        ("node:cpu*", ["cpu1", "cpu2"]),
        ("reason:fan", ["gpu2"]),
        ("fan", ["gpu2"]),
    ],
)
def test_nodes_are_found_by_their_resources(text: str, names: list[str]) -> None:
    assert [each.name for each in VOCABULARY.query(text).matching(NODES)] == names


def test_nodes_are_sorted_by_their_numbers_and_an_unknown_state_is_refused() -> None:
    assert [each.name for each in in_order(NODES, VOCABULARY.orders("node"))] == [
        "cpu1",
        "cpu2",
        "gpu2",
        "gpu10",
    ]
    with pytest.raises(UserError, match="did you mean drain"):
        VOCABULARY.query("state:drian")
