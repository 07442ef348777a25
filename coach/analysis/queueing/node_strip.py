"""Summarize the nodes of a cluster by GPU type: the allocated share of each node, and the share that is
blocked.

There is one value per node, so that 10,000 nodes are processed once per answer, and not once per redraw.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from coach.analysis.queueing.free_gpus import free_gpus
from coach.analysis.queueing.node_state import why_no_job
from coach.model.slurm.cluster import Node, Partition

CPUS = "cpu"
"""Kind of the strip of nodes without GPUs."""


@dataclass(frozen=True, slots=True)
class NodeShare:
    """The allocation of one node: its GPUs of one type, or its CPUs. `free` counts those that a job could get
    now."""

    node: str
    total: int
    allocated: int | None
    free: int | None

    @property
    def num_blocked(self) -> int:
        """The number of those that are neither allocated nor free; 0 if `free` is None."""
        return max(0, self.total - (self.allocated or 0) - (self.free or 0)) if self.free is not None else 0


@dataclass(frozen=True, slots=True)
class Strip:
    """The nodes with GPUs of one type, or without any."""

    kind: str | None
    """None if the site names no type; `CPUS` for nodes without GPUs."""
    nodes: tuple[NodeShare, ...]

    total: int
    allocated: int | None
    free: int | None
    """Like `allocated`, None if a node's value is missing."""
    num_blocked: int
    places: Mapping[str, int] = field(compare=False, repr=False)
    """Node name → index in `nodes`."""

    @property
    def has_gpus(self) -> bool:
        """False if these are the nodes without GPUs."""
        return self.kind != CPUS


def strips_of(nodes: Sequence[Node], partitions: Sequence[Partition]) -> tuple[Strip, ...]:
    """One strip per type, the type with most GPUs first, nodes in the given order; nodes without GPUs come
    last."""
    by_type: dict[str | None, list[NodeShare]] = {}
    for gpus in free_gpus(nodes, partitions):
        share = NodeShare(gpus.node, gpus.total, gpus.allocated, gpus.free)
        by_type.setdefault(gpus.type, []).append(share)
    strips = [_strip(kind, shares) for kind, shares in by_type.items()]
    strips.sort(key=lambda strip: -strip.total)
    plain = [_cpus_of(node) for node in nodes if not node.gpus and node.num_cpus]
    return (*strips, _strip(CPUS, plain)) if plain else tuple(strips)


def _strip(kind: str | None, shares: Sequence[NodeShare]) -> Strip:
    return Strip(
        kind,
        tuple(shares),
        sum(each.total for each in shares),
        _sum(each.allocated for each in shares),
        _sum(each.free for each in shares),
        sum(each.num_blocked for each in shares),
        {each.node: place for place, each in enumerate(shares)},
    )


def _cpus_of(node: Node) -> NodeShare:
    total, allocated = node.num_cpus or 0, node.num_cpus_allocated
    idle = None if allocated is None else max(0, total - allocated)
    return NodeShare(node.name, total, allocated, 0 if why_no_job(node) is not None else idle)


def _sum(values: Iterable[int | None]) -> int | None:
    known = [*values]
    return None if None in known else sum(value for value in known if value is not None)
