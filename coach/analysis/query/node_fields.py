"""The fields by which nodes can be filtered and sorted.

Fields with the same name as a job's have the same meaning; `free` counts the GPUs that a job could get now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter

from coach.analysis.query.kinds import COUNT, NAME, SIZE, TEXT, TIME, Expand, node_set, states
from coach.analysis.query.language import Field, Vocabulary
from coach.analysis.queueing.free_gpus import free_gpus
from coach.analysis.queueing.node_state import STATE_WORDS, split_state
from coach.model.slurm.cluster import Node, Partition

_STATE = states(STATE_WORDS, {}, split_state, "idle, mixed, drain … (its state, or one of its flags)")


def node_vocabulary(num_free: Callable[[Node], int | None], expand: Expand) -> Vocabulary[Node]:
    """`num_free` returns the GPUs of a node that a job could get now."""
    fields: tuple[Field[Node], ...] = (
        Field("node", "name", "NODE", "node", node_set(expand), attrgetter("name"), ("name",)),
        Field("state", "state", "STATE", "state", _STATE, attrgetter("state")),
        Field(
            "part",
            "partitions",
            "PARTITIONS",
            "partition",
            NAME,
            attrgetter("partitions"),
            ("partition", "partitions"),
        ),
        Field("cpus", "num_cpus", "CPUS", "how many CPUs", COUNT, attrgetter("num_cpus"), ("cpu",)),
        Field("mem", "memory_mib", "MEMORY", "memory", SIZE, attrgetter("memory_mib"), ("memory",)),
        Field("gpu", "num_gpus", "GPUS", "how many GPUs", COUNT, _num_gpus, ("gpus",)),
        Field("free", "num_gpus_free", "FREE", "how many GPUs a job could have now", COUNT, num_free),
        Field("type", "gpu_types", "TYPE", "type of GPU", NAME, _gpu_types),
        Field(
            "since", "reason_time_s", "SINCE", "when the reason was set", TIME, attrgetter("reason_time_s")
        ),
        Field("reason", "reason", "REASON", "why it is drained or down", TEXT, attrgetter("reason")),
    )
    return Vocabulary(fields, _text)


def count_free(nodes: Sequence[Node], partitions: Sequence[Partition]) -> Callable[[Node], int | None]:
    """A function that returns the GPUs of a node that a job could get now; None if it has no GPUs or reports
    no allocation. Counts all nodes at the first call."""

    @cache
    def counts() -> dict[tuple[str | None, str], int | None]:
        found: dict[tuple[str | None, str], int | None] = {}
        for each in free_gpus(nodes, partitions):
            before = found.get((each.cluster, each.node), 0)
            found[each.cluster, each.node] = (
                None if None in (before, each.free) else (before or 0) + (each.free or 0)
            )
        return found

    return lambda node: counts().get((node.cluster, node.name))


def _num_gpus(node: Node) -> int:
    return sum(gpu.total for gpu in node.gpus)


def _gpu_types(node: Node) -> tuple[str, ...]:
    return tuple(gpu.type for gpu in node.gpus if gpu.type)


def _text(node: Node) -> str:
    types = " ".join(_gpu_types(node))
    return f"{node.name} {node.state} {node.reason or ''} {' '.join(node.partitions)} {types}"
