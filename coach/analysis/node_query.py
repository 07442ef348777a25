"""What a node can be filtered and sorted by.

A table of its own: the words mean the same as for jobs where they have the same name, and `free` counts what a job could have now.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from coach.analysis.node_state import STATE_WORDS, split_state
from coach.analysis.query import Field, Vocabulary
from coach.analysis.query_kinds import COUNT, NAME, SIZE, TEXT, TIME, Expand, node_set, states
from coach.model.cluster import Node

_STATE = states(STATE_WORDS, {}, split_state, "idle, mixed, drain … (its state, or one of its flags)")


def node_vocabulary(num_free: Callable[[Node], int | None], expand: Expand) -> Vocabulary[Node]:
    """`num_free` tells how many GPUs of a node a job could have now."""
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
        Field("since", "reason_time_s", "SINCE", "when that was said", TIME, attrgetter("reason_time_s")),
        Field("reason", "reason", "REASON", "why it is drained or down", TEXT, attrgetter("reason")),
    )
    return Vocabulary(fields, _text)


def _num_gpus(node: Node) -> int:
    return sum(gpu.total for gpu in node.gpus)


def _gpu_types(node: Node) -> tuple[str, ...]:
    return tuple(gpu.type for gpu in node.gpus if gpu.type)


def _text(node: Node) -> str:
    types = " ".join(_gpu_types(node))
    return f"{node.name} {node.state} {node.reason or ''} {' '.join(node.partitions)} {types}"
