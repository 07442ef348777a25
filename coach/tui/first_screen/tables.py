"""How the queue and the nodes of the first screen are looked at: the words that their filters know."""

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
    """Of jobs."""
    return TableView(lambda: job_vocabulary(context.user, context.now_s, expand_nodes), JOB_COLUMNS)


def node_view(context: Context) -> TableView[Node]:
    """Of nodes: what is free of them is counted when a filter asks for it."""
    return TableView(
        lambda: node_vocabulary(
            count_free(context.snapshot.nodes, context.snapshot.partitions), expand_nodes
        ),
        NODE_COLUMNS,
    )
