"""The views of the queue and the nodes on the first screen, with the words of their filters."""

from __future__ import annotations

from coach.analysis.query.job_fields import job_vocabulary
from coach.analysis.query.node_fields import count_free, node_vocabulary
from coach.model.slurm.cluster import Job, Node
from coach.sources.slurm.node_sets import expand_nodes
from coach.tui.context import Context
from coach.tui.render.cluster import NODE_COLUMNS
from coach.tui.render.queue import JOB_COLUMNS
from coach.tui.table_view import TableView


def queue_view(context: Context) -> TableView[Job]:
    """The view of the queue."""
    return TableView(lambda: job_vocabulary(context.user, context.now_s, expand_nodes), JOB_COLUMNS)


def node_view(context: Context) -> TableView[Node]:
    """The view of the nodes. Free GPUs are counted only if a filter uses them."""
    return TableView(
        lambda: node_vocabulary(
            count_free(context.snapshot.nodes, context.snapshot.partitions), expand_nodes
        ),
        NODE_COLUMNS,
    )
