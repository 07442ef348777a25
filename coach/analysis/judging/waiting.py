"""Why a job has not started: the reason, the remedy and the estimate, as commands print them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from coach.analysis.queueing.node_state import why_no_job
from coach.analysis.queueing.pending_reasons import (
    NOTHING,
    KnownReasons,
    PendingClass,
    PendingReason,
    explain_job,
    order_id,
    parse_dependency,
)
from coach.analysis.spelling.printable import printable
from coach.analysis.spelling.slurm import format_time
from coach.model.slurm.cluster import Job, Node, Partition
from coach.model.training.other_machine import rough_age

_MAX_NODES = 3
"""Nodes that are named with their state and reason."""
PENDING = "pending"
"""The key of a waiting job's object in the public JSON."""

_MAX_CHAIN = 20
"""Jobs of a chain of dependencies that are looked at."""

_KINDS = {
    PendingClass.WAIT: "waits",
    PendingClass.LIMIT: "a limit",
    PendingClass.NEVER: "it will never start as it is",
    PendingClass.HELD: "held",
    PendingClass.ENDED: "how an earlier attempt ended",
    PendingClass.UNKNOWN: "a reason that coach does not know",
}


def is_over_partition_limit(job: Job) -> bool:
    """True if the job requests more time than its partition allows: that limit is worth a query then."""
    return job.state == "PENDING" and (job.reason or "").startswith("PartitionTimeLimit")


def exceeded_limit_s(job: Job, partitions: Sequence[Partition]) -> int | None:
    """The longest time limit of the job's partitions, if it waits because it requests more; else None."""
    if not is_over_partition_limit(job):
        return None
    named = job.partition.split(",")
    limits = (each.time_limit_s for each in partitions if each.cluster == job.cluster and each.name in named)
    return max((limit for limit in limits if limit), default=None)


def explain_waiting(
    job: Job,
    partitions: Sequence[Partition],
    known: KnownReasons | None = None,
    nodes: Mapping[str, Sequence[Node]] = MappingProxyType({}),
) -> PendingReason | None:
    """Why the job is pending; None if it is not. The limits of its partitions, and the states of the nodes
    that it waits for, are named if they are known. `nodes`: node set expression → its nodes."""
    why, limit_s = explain_job(job, known), exceeded_limit_s(job, partitions)
    if why is not None and (told := _states(nodes.get(why.nodes or "", ()))):
        return replace(why, meaning=f"nodes that it needs are not available: {told}")
    if why is None or limit_s is None:
        return why
    longest = format_time(limit_s)
    asked = "" if job.time_limit_s is None else f" of {format_time(job.time_limit_s)}"
    meaning = f"its time limit{asked} is longer than its partition allows: {longest}"
    return replace(why, meaning=meaning, advice=why.advice.replace("…", longest))


def _states(nodes: Sequence[Node]) -> str:
    """Each node with its state and the reason that Slurm has for it; empty if one node takes jobs again."""
    told = []
    for node in nodes:
        state = why_no_job(node)
        if state is None:
            return ""
        reason = f" (reason: {printable(node.reason)})" if node.reason else ""
        told.append(f"{printable(node.name)}: {state}{reason}")
    more = len(told) - _MAX_NODES
    return "; ".join(told[:_MAX_NODES]) + (f"; {more} more nodes" if more > 0 else "")


def behind_stuck(job: Job, why: PendingReason, other: Callable[[str], Job | None]) -> PendingReason:
    """The reason of a job that waits for one that never starts as it is. `other` returns a job of the
    queue."""
    stuck = _stuck_before(job, other, _MAX_CHAIN)
    if stuck is None:
        return why
    advice = f"job {stuck} never starts as it is: change that one first, or cancel it: coach cancel {stuck}"
    return replace(why, kind=PendingClass.NEVER, advice=advice, starts_by_itself=False)


def behind_exclude(job: Job, why: PendingReason, left_out: str, nodes: Sequence[Node]) -> PendingReason:
    """The reason of a job that waits for nodes and leaves out some by its own --exclude. `left_out` is their
    node set expression, `nodes` their present states. Only nodes of its partition that take a job now are a
    remedy."""
    named = job.partition.split(",")
    free = [
        node.name for node in nodes if why_no_job(node) is None and not {*node.partitions}.isdisjoint(named)
    ]
    more = f"; its own --exclude leaves out {left_out}"
    if not free:
        return replace(why, meaning=why.meaning + more)
    taking = f"{', '.join(free[:_MAX_NODES])}{' and more' if len(free) > _MAX_NODES else ''}"
    return replace(
        why,
        meaning=f"{why.meaning}{more}, where {taking} takes jobs now",
        advice=f"scontrol update JobId={order_id(job.job_id)} ExcNodeList= lets it start on every node",
    )


def _stuck_before(job: Job, other: Callable[[str], Job | None], num_left: int) -> str | None:
    """The job at the beginning of its chain that never starts; None if there is none."""
    if not num_left or not (job.reason or "").startswith("Dependency") or "?" in (job.dependency or ""):
        return None
    ids = (
        job_id for _, job_ids, _ in parse_dependency(job.dependency or "") for job_id in job_ids.split(", ")
    )
    for before in filter(None, map(other, ids)):
        why = explain_job(before)
        if why is not None and is_never(why):
            return before.job_id
        if (stuck := _stuck_before(before, other, num_left - 1)) is not None:
            return stuck
    return None


def waiting_object(why: PendingReason, estimated_start_s: float | None) -> dict[str, Any]:
    """The public JSON of a waiting job."""
    return {
        "reason": why.reason,
        "kind": why.kind.value,
        "meaning": why.meaning,
        "advice": why.advice,
        "starts_by_itself": why.starts_by_itself,
        "never_starts": is_never(why),
        "nodes": why.nodes,
        "estimated_start_s": estimated_start_s,
    }


def waiting_lines(waiting: Mapping[str, Any], now_s: float) -> Iterator[str]:
    """The reason, the remedy, and the start that Slurm expects."""
    kind = PendingClass(str(waiting["kind"]))
    yield f"{_KINDS[kind]}: {printable(waiting['meaning'])} (Slurm says {printable(waiting['reason'])})"
    if waiting["advice"] != NOTHING:
        yield f"what to do: {printable(waiting['advice'])}"
    start_s = waiting["estimated_start_s"]
    if isinstance(start_s, int | float):
        when = f"in {rough_age(start_s - now_s)}" if start_s > now_s else "now"
        yield f"starts: {when}, by Slurm's estimate, which changes with the queue"
    elif kind is PendingClass.WAIT:
        yield "starts: Slurm has not estimated it"


def is_never(why: PendingReason) -> bool:
    """True for a job that cannot start with what it asks for, however long it waits."""
    is_over_a_limit = why.kind is PendingClass.LIMIT and not why.starts_by_itself
    return is_over_a_limit or why.kind is PendingClass.NEVER
