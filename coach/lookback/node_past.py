"""Allocations of the nodes while coach was open. A look is kept only if it differs from the one before.

Slurm reports only the present. A cluster of 10,000 nodes needs a few megabytes here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from coach.model.slurm.cluster import Node

MAX_LOOKS = 100_000  # of all nodes
MIN_LOOKS = 16


@dataclass(frozen=True, slots=True)
class NodeLook:
    """The allocation of one node at one time. None: Slurm did not report it."""

    time_s: float
    cpus: int | None
    memory_mib: int | None
    gpus: int | None


class NodePast:
    """The looks at each node, oldest first."""

    def __init__(self) -> None:
        self._looks: dict[str, deque[NodeLook]] = {}
        self._nodes: object = None
        self.since_s: float | None = None
        """Time of the first look, in epoch seconds."""

    def look(self, nodes: Sequence[Node], time_s: float) -> None:
        """Record the allocations, unless `nodes` is the same object as at the last call."""
        if nodes is self._nodes or not nodes:
            return
        self._nodes = nodes
        self.since_s = time_s if self.since_s is None else self.since_s
        bound = max(MIN_LOOKS, MAX_LOOKS // len(nodes))
        for node in nodes:
            looks = self._looks.setdefault(node.name, deque())
            gpus = _sum([gpu.allocated for gpu in node.gpus])
            now = NodeLook(time_s, node.num_cpus_allocated, node.memory_allocated_mib, gpus)
            last = looks[-1] if looks else None
            if last is None or (last.cpus, last.memory_mib, last.gpus) != (
                now.cpus,
                now.memory_mib,
                now.gpus,
            ):
                looks.append(now)
                if len(looks) > bound:
                    looks.popleft()

    def of(self, name: str) -> Sequence[NodeLook]:
        return self._looks.get(name, ())


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
