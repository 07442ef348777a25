"""Why jobs wait, with the time limit of a partition, or the state of nodes, where it is the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from coach.analysis.judging.waiting import (
    behind_exclude,
    behind_stuck,
    explain_waiting,
    is_over_partition_limit,
    waiting_object,
)
from coach.analysis.queueing.pending_reasons import KnownReasons, PendingReason, explain_job
from coach.model.slurm.cluster import Job, Node, Partition
from coach.sources.io import Io
from coach.sources.slurm.client import Client
from coach.sources.slurm.job_record import excluded_nodes, job_nodes
from coach.sources.slurm.nodes import parse_partitions, partitions_query

_MAX_SETS = 3
_WAITS_FOR_NODES = frozenset(
    {"Resources", "ReqNodeNotAvail", "NodeDown", "BadConstraints", "PartitionConfig"}
)
Explain = Callable[[Job], PendingReason | None]


def explainer(
    jobs: Iterable[Job] = (), io: Io | None = None, other: Callable[[str], Job | None] | None = None
) -> Explain:
    """A function that explains jobs. Sends one query per cluster in which one of `jobs` exceeds its
    partition's limit, and one for the nodes of a set that `jobs` wait for, at most three sets. Without an
    answer, the limit and the states stay unnamed. `other` returns a job of the queue by its id; left out, one
    of `jobs`."""
    jobs = tuple(jobs)
    clusters = dict.fromkeys(job.cluster for job in jobs if is_over_partition_limit(job))
    found: list[Partition] = []
    for cluster in clusters if io is not None else ():
        assert io is not None
        answer = Client(io).ask(partitions_query(cluster))
        found += parse_partitions(answer.text, None, cluster)[0]
    known = KnownReasons()
    waits = (explain_job(job, known) for job in jobs if job.cluster is None)
    sets = dict.fromkeys(why.nodes for why in waits if why is not None and why.nodes is not None)
    nodes = {each: job_nodes(io, each).nodes for each in islice(sets, _MAX_SETS)} if io is not None else {}
    find = other or {job.job_id: job for job in jobs}.get
    return partial(_explain, partitions=found, known=known, nodes=nodes, other=find)


def _explain(
    job: Job,
    partitions: Sequence[Partition],
    known: KnownReasons,
    nodes: Mapping[str, Sequence[Node]],
    other: Callable[[str], Job | None],
) -> PendingReason | None:
    why = explain_waiting(job, partitions, known, nodes)
    return behind_stuck(job, why, other) if why is not None else None


def waiting_of(job: Job | None, io: Io | None, other: Callable[[str], Job | None]) -> dict[str, Any] | None:
    """The public JSON of a job that waits; None of another. `other` returns a job of the queue. Without `io`
    Slurm is not asked."""
    why = explainer((job,), io, other)(job) if job is not None else None
    if job is None or why is None:
        return None
    why = why if io is None else _without_excluded(job, why, io)
    return waiting_object(why, job.estimated_start_s)


def _without_excluded(job: Job, why: PendingReason, io: Io) -> PendingReason:
    """The reason, with the nodes that the job's own --exclude leaves out. At most 3 queries, only for a job
    that waits for nodes."""
    word = why.reason.split(",")[0].split(" ")[0]
    if word not in _WAITS_FOR_NODES or job.cluster is not None:
        return why
    left_out = excluded_nodes(io, job.raw_job_id or job.job_id)
    return behind_exclude(job, why, left_out, job_nodes(io, left_out).nodes) if left_out else why
