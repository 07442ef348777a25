"""Where a job could start now: each partition with its free GPUs by type, the most free GPUs on one node, and
who may use it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coach.analysis.queueing.free_gpus import TypeGpus, why_no_access
from coach.model.errors import hidden_by_site
from coach.model.slurm.accounting import Limits
from coach.model.slurm.cluster import Partition
from coach.render.text import (
    BLANK,
    Line,
    Span,
    clip,
    clock,
    line,
    muted,
    of_total,
    plural,
    printable,
    strong,
    whole,
)
from coach.tui.render.cluster import FreeGpus

_MAY: dict[bool | None, Span] = {
    True: Span("● open to you", "good"),
    False: Span("✖ not for you", "critical"),
    None: Span("? perhaps for you", "warning"),
}


def where_lines(
    partitions: Iterable[Partition],
    free: FreeGpus,
    associations: Sequence[Limits] | None,
    width: int,
    is_hidden: bool = False,
) -> list[Line]:
    """A block for each partition, the default one first. `associations` are the user's; None if Slurm did not
    report them."""
    if is_hidden:
        return [line(muted(f" {hidden_by_site('partitions')}"))]
    rows: list[Line] = []
    for partition in sorted(partitions, key=lambda each: (not each.is_default, each.name)):
        may, asked = why_no_access(partition, associations)
        limit = (
            "no time limit" if partition.time_limit_s is None else f"at most {clock(partition.time_limit_s)}"
        )
        default = partition.default_time_s
        usual = "" if default in (None, partition.time_limit_s) else f", {clock(default)} by default"
        rows += [
            line(
                strong(f" {printable(partition.name)}"),
                muted(" default" if partition.is_default else ""),
                "  ",
                _MAY[may],
                muted(f" ({printable('; '.join(asked))})" if asked else ""),
            ),
            line(
                f"   {whole(partition.num_nodes_idle)} of {plural(partition.num_nodes, 'node')} idle"
                f" · cpus {of_total(partition.num_cpus_allocated, partition.num_cpus)} in use"
                f" · {limit}{usual}{' · whole nodes only' if partition.is_exclusive else ''}"
                f"{' · hidden: squeue and sinfo show it with -a' if partition.is_hidden else ''}"
            ),
        ]
        for gpus in free.get((partition.cluster, partition.name), ()):
            rows += _gpu_lines(gpus)
        rows.append(BLANK)
    return [clip(row, width) for row in rows] or [line(muted(" no partition is known yet"))]


def _gpu_lines(gpus: TypeGpus) -> list[Line]:
    kind = printable(gpus.type) if gpus.type else "GPUs"
    most = "" if not gpus.largest_free else f", at most {gpus.largest_free} on one node"
    on = f" on {plural(gpus.num_nodes_free, 'node')}" if gpus.num_nodes_free else ""
    rows = [
        line(
            "   ",
            Span("● " if gpus.free else "○ ", "good" if gpus.free else "muted"),
            strong(f"free {whole(gpus.free)} of {gpus.total} {kind}"),
            f"{on}{most}",
        )
    ]
    for because, count in sorted(gpus.blocked.items(), key=lambda item: -item[1]):
        rows.append(line(muted(f"       {count} idle, not available: {printable(because)}")))
    return rows
