"""Check if the learners of a workshop fit the machines in the time: pure arithmetic, with every number shown.

All learners do a recipe at the same time, then the next, as in a classroom; it is the highest load for the
machines. Other users of the machines, and delays of the queue, are not included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from coach.analysis.queueing.node_state import split_state
from coach.model.slurm.cluster import Node
from coach.model.teaching.rehearsal import Fit, Item, NodeRoom, Place, Rehearsed, Shape, Share, WorkshopPlan

_OUT_OF_SERVICE = frozenset(
    {
        *("down", "error", "unknown", "future", "fail", "failing", "drain", "draining", "maint"),
        *("not_responding", "invalid_reg"),
    }
)
"""A node in one of these states cannot take a learner's run. One that is busy, reserved or powered down now
can do so later."""


def place_of(name: str, nodes: Iterable[Node], *, is_exclusive: bool = False) -> Place:
    """The nodes in service, each with all its resources."""
    rooms = (
        NodeRoom(
            tuple((gpu.type, gpu.total) for gpu in node.gpus),
            node.num_cpus,
            node.memory_mib,
        )
        for node in nodes
        if _OUT_OF_SERVICE.isdisjoint(split_state(node.state))
    )
    return Place(name, tuple(rooms), is_exclusive)


def at_once(shape: Shape, place: Place) -> int:
    """Runs of this shape that fit at the same time. Each part of a run over several nodes needs a node of its
    own."""
    parts = [_parts(shape, room) for room in place.rooms]
    if place.is_exclusive:
        parts = [min(1, number) for number in parts]
    most = sum(parts) // shape.num_nodes
    while most and sum(min(number, most) for number in parts) < shape.num_nodes * most:
        most -= 1
    return most


def _parts(shape: Shape, room: NodeRoom) -> int:
    """Parts of runs that fit on one node, limited by the scarcest resource."""
    num_gpus = sum(number for kind, number in room.gpus if shape.gpu_type in (None, kind))
    limits = [
        (num_gpus, shape.gpus_per_node),
        (room.num_cpus, shape.cpus_per_node),
        (room.memory_mib, shape.mem_mib),
    ]
    return min((has // needs for has, needs in limits if has is not None and needs), default=0)


def fit(plan: WorkshopPlan, rehearsed: Iterable[Rehearsed]) -> Fit:
    """The arithmetic of the day, from measured and stated values."""
    tried = tuple(rehearsed)
    places = tuple(dict.fromkeys(each.place for each in tried if each.place is not None))
    shares = tuple(_share(plan, item, each) for item, each in zip(plan.items, tried, strict=True))
    return Fit(plan.learners, plan.minutes * 60, places, shares)


def _share(plan: WorkshopPlan, item: Item, tried: Rehearsed) -> Share:
    shape, place = tried.shape, tried.place
    if shape is None:
        return Share(item.name, None, None, None, None, None, "it could not be planned")
    num_cpus = shape.num_nodes * shape.cpus_per_node
    if place is None:
        why = "nobody can say which nodes are for it"
        return Share(item.name, shape.num_gpus, num_cpus, None, None, None, why)
    number = at_once(shape, place)
    rounds = math.ceil(plan.learners / number) if number else None
    return Share(
        item.name, shape.num_gpus, num_cpus, number, rounds, *_whole_run(item, tried, shape.num_gpus)
    )


def _whole_run(item: Item, tried: Rehearsed, num_gpus: int) -> tuple[float | None, str, bool]:
    """Seconds of a learner's launch, the source of that value, and True if it is only an upper bound."""
    if item.minutes is not None:
        return item.minutes * 60, "as the plan says", False
    runs = "" if tried.num_runs == 1 else f", {tried.num_runs} runs"
    if tried.gpu_hours is not None and num_gpus and tried.seconds is not None and tried.is_well:
        whole_s = tried.num_runs * tried.seconds + tried.gpu_hours * 3600 / num_gpus
        return whole_s, f"measured, and the recipe's {tried.gpu_hours:g} GPU-hours{runs}", False
    if tried.time_limit_s is not None:
        return float(tried.num_runs * tried.time_limit_s), f"at most: its time limit{runs}", True
    return None, "no minutes said, and no time limit", False
