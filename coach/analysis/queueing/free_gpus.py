"""Count the GPUs on which a job could start now, map GPUs to jobs, and check if a partition is open to the
user.

An idle GPU is not free if its node is drained, reserved, planned for another job, held exclusively, or out of
CPUs: a count that includes it sends people to wait there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from coach.analysis.queueing.node_state import why_no_job
from coach.model.slurm.accounting import Limits
from coach.model.slurm.cluster import GpuAllocation, Node, Partition


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of one type on one node. `why_not`: why none of the idle ones is free."""

    node: str
    type: str | None
    total: int
    allocated: int | None
    free: int | None
    """None if Slurm does not report the allocated GPUs."""
    why_not: str | None
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class TypeGpus:
    """All GPUs of one type. A GPU neither allocated nor free is blocked; a sum is None if one node's value is
    missing."""

    type: str | None
    total: int
    allocated: int | None
    free: int | None
    largest_free: int | None
    """The most free GPUs on one node: the largest single-node job that could start."""
    num_nodes_free: int
    blocked: Mapping[str, int]
    """Why idle GPUs are not free → number of GPUs."""


@dataclass(frozen=True, slots=True)
class GpuSlot:
    """One GPU of a node, by its index. `job_id` is None if it is idle, or if its job is not known
    (`is_used`). `is_used` is None if Slurm does not report which GPUs are in use."""

    node: str
    index: int
    is_used: bool | None
    job_id: str | None


def free_gpus(nodes: Iterable[Node], partitions: Sequence[Partition] = ()) -> tuple[NodeGpus, ...]:
    """Free GPUs per node and type. If partitions are given, a node counts only if one of its partitions is up
    and allows sharing it."""
    known = {(partition.cluster, partition.name): partition for partition in partitions}
    found: list[NodeGpus] = []
    for node in nodes:
        if node.gpus:
            members = [each for name in node.partitions if (each := known.get((node.cluster, name)))]
            found += _gpus_of(node, why_no_job(node) or _why_not_by_partition(node, members))
    return tuple(found)


def free_by_partition(
    nodes: Iterable[Node], partitions: Sequence[Partition]
) -> Mapping[tuple[str | None, str], tuple[TypeGpus, ...]]:
    """The GPUs that a job of each partition could get now, by type. Partitions are keyed by cluster and name;
    those without GPUs are left out."""
    known = {(each.cluster, each.name): each for each in partitions if each.gpus}
    found: dict[tuple[str | None, str], list[NodeGpus]] = {}
    for node in nodes:
        if not node.gpus:
            continue
        why_not = why_no_job(node)
        anywhere = _gpus_of(node, why_not)
        for name in node.partitions:
            partition = known.get((node.cluster, name))
            if partition is not None:
                closed = None if why_not else _why_not_by_partition(node, (partition,))
                here = _gpus_of(node, closed) if closed else anywhere
                found.setdefault((node.cluster, name), []).extend(here)
    return {key: sum_by_type(gpus) for key, gpus in found.items()}


def _gpus_of(node: Node, why_not: str | None) -> list[NodeGpus]:
    found = []
    for gpu in node.gpus:
        idle = None if gpu.allocated is None else max(0, gpu.total - gpu.allocated)
        free = 0 if why_not is not None else idle
        said = why_not if idle != 0 else None
        found.append(NodeGpus(node.name, gpu.type, gpu.total, gpu.allocated, free, said, node.cluster))
    return found


def sum_by_type(gpus: Iterable[NodeGpus]) -> tuple[TypeGpus, ...]:
    """Most GPUs first."""
    by_type: dict[str | None, list[NodeGpus]] = {}
    for each in gpus:
        by_type.setdefault(each.type, []).append(each)
    sums = [_sum(kind, members) for kind, members in by_type.items()]
    return tuple(sorted(sums, key=lambda each: (-each.total, each.type or "")))


def _sum(kind: str | None, members: Sequence[NodeGpus]) -> TypeGpus:
    blocked: dict[str, int] = {}
    for each in members:
        if each.why_not is not None and each.allocated is not None:
            blocked[each.why_not] = blocked.get(each.why_not, 0) + max(0, each.total - each.allocated)
    free = [each.free for each in members]
    known_free = [count for count in free if count is not None]
    allocated = [each.allocated for each in members if each.allocated is not None]
    return TypeGpus(
        kind,
        sum(each.total for each in members),
        sum(allocated) if len(allocated) == len(members) else None,
        sum(known_free) if len(known_free) == len(members) else None,
        max(known_free, default=None),
        sum(1 for count in known_free if count),
        blocked,
    )


def _why_not_by_partition(node: Node, members: Sequence[Partition]) -> str | None:
    if not members:
        return None
    open_ones = [partition for partition in members if partition.state == "up"]
    if not open_ones:
        return f"partition {members[0].name} is {members[0].state}"
    if node.num_cpus_allocated and all(partition.is_exclusive for partition in open_ones):
        return "a job has the whole node"
    return None


def allocation_map(nodes: Iterable[Node], allocations: Iterable[GpuAllocation]) -> tuple[GpuSlot, ...]:
    """Each GPU of each node, and the job that has it.

    The output of `scontrol show job` contains other people's text. So a claim counts only if the node itself
    reports the GPU as used, and if no second job claims it.
    """
    claims: dict[tuple[str, int], set[str]] = {}
    for allocation in allocations:
        for name in allocation.nodes:
            for index in allocation.indices:
                claims.setdefault((name, index), set()).add(allocation.job_id)
    slots = []
    for node in nodes:
        total = sum(gpu.total for gpu in node.gpus)
        used = frozenset(node.gpu_indices or ())
        is_known = node.gpu_indices is not None or all(gpu.allocated == 0 for gpu in node.gpus)
        for index in sorted({*range(total), *used}):
            jobs = claims.get((node.name, index), set()) if index in used else set()
            is_used = index in used if is_known else None
            slots.append(GpuSlot(node.name, index, is_used, next(iter(jobs)) if len(jobs) == 1 else None))
    return tuple(slots)


def why_no_access(
    partition: Partition, associations: Sequence[Limits] | None
) -> tuple[bool | None, tuple[str, ...]]:
    """(True if the user may use it, the conditions). None: the user may or may not meet a condition; Slurm
    does not report it."""
    conditions = tuple(_conditions(partition, associations))
    answers = [may for may, _ in conditions]
    answer = False if False in answers else None if None in answers else True
    return answer, tuple(words for _, words in conditions)


def _conditions(
    partition: Partition, associations: Sequence[Limits] | None
) -> Iterator[tuple[bool | None, str]]:
    """Whether the user meets each condition of the partition (None: perhaps), and its words."""
    accounts = None if associations is None else {each.name for each in associations}
    qos = None if associations is None else {name for each in associations for name in each.qos}
    if partition.state != "up":
        yield False, f"it is {partition.state}"
    if partition.is_root_only:
        yield False, "only root"
    yield from _named("account", partition.allow_accounts, accounts, has_children=True)
    yield from _named("QOS", partition.allow_qos, qos)
    yield from _named("group", partition.allow_groups, None)
    if partition.allow_accounts is None:  # beside AllowAccounts Slurm ignores DenyAccounts
        yield from _denied(partition.deny_accounts, accounts)
    if partition.needs_reservation:
        yield None, "only with a reservation"
    if partition.allow_submit_nodes is not None:
        yield None, f"only from {' or '.join(partition.allow_submit_nodes)}"


def _denied(denied: Sequence[str], own: Set[str] | None) -> Iterator[tuple[bool | None, str]]:
    if denied and (own is None or not own.isdisjoint(denied)):
        yield (False if own and own <= set(denied) else None), f"not account {' or '.join(denied)}"


def _named(
    what: str, allowed: Sequence[str] | None, own: Set[str] | None, has_children: bool = False
) -> Iterator[tuple[bool | None, str]]:
    """The condition that names the accounts, QOS or groups of the partition. `own`: the user's; None if
    Slurm does not report them. `has_children`: since Slurm 23.02 an account stands for those below it too,
    and the user's rows do not name the accounts above theirs."""
    if allowed is None:
        return
    mine = [name for name in allowed if own is not None and name in own]
    if mine:
        yield True, f"with {what} {' or '.join(mine)}"
    else:
        below = " or below" if has_children else ""
        is_known = own is not None and not has_children
        yield (False if is_known else None), f"only {what} {' or '.join(allowed)}{below}"
