"""Place of a job without measurements: its position among waiting jobs, and its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from coach.analysis.queueing.ahead import Standing, same_name, standing_of
from coach.analysis.queueing.free_gpus import NodeGpus, free_gpus
from coach.model.slurm.cluster import Job, Node, Partition, is_final
from coach.sources.slurm.node_sets import expand_nodes
from coach.tui.context import Context

_MAX_NODES = 4


@dataclass(frozen=True, slots=True)
class JobPlace:
    """A job's place, from the queue and the node list."""

    standing: Standing | None = None
    """Position of a waiting job in its partition."""
    nodes: Sequence[tuple[Node, Sequence[NodeGpus]]] = ()
    """Its first allocated or planned nodes, each with its free GPUs."""
    nodes_read_s: float | None = None
    """When the nodes were read."""
    partitions: Sequence[Partition] = ()
    """All partitions, with their time limits."""
    jobs: Mapping[str, Job] = field(default_factory=lambda: MappingProxyType({}))
    """The queue by job id."""


NOWHERE = JobPlace()


def job_place(context: Context, job: Job, *, is_measured: bool) -> JobPlace:
    """The job's place. `is_measured`: a step inside the job reports its nodes, so they are left out here."""
    status = context.snapshot.sources.get("nodes")
    read_s = status.data_time_s if status is not None else None
    nodes = () if is_measured else _nodes_of(context, job)
    return JobPlace(_standing(context, job), nodes, read_s, context.snapshot.partitions, context.jobs_by_id)


def _standing(context: Context, job: Job) -> Standing | None:
    """The job's standing, computed once per queue. If coach sees only the user's own jobs, it names only
    those that a singleton waits for."""
    snapshot = context.snapshot
    if not snapshot.is_queue_whole or "jobs" in snapshot.hidden:
        names = same_name(job, snapshot.jobs)  # they are the user's own
        return Standing(0, 0, (), names) if names else None
    if context.standing[0] is not snapshot.jobs or context.standing[1] is not job:
        context.standing = (snapshot.jobs, job, standing_of(job, snapshot.jobs))
    return context.standing[2]


def _nodes_of(context: Context, job: Job) -> list[tuple[Node, Sequence[NodeGpus]]]:
    if is_final(job.state):
        return []
    names = frozenset(expand_nodes(job.nodes or job.scheduled_nodes)[:_MAX_NODES])
    nodes = [node for node in context.snapshot.nodes if node.name in names]
    return [(node, free_gpus([node], context.snapshot.partitions)) for node in nodes]
