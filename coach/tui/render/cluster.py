"""Partitions and nodes as lines and rows: their resources, and the allocated part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from coach.analysis.query.language import Order, in_order
from coach.analysis.queueing.free_gpus import TypeGpus
from coach.lookback.glance import DeviceUse
from coach.model.errors import hidden_by_site
from coach.model.slurm.cluster import GpuCount, Node, Partition
from coach.render.severity import node_state_sign, node_state_tone
from coach.render.text import (
    UNKNOWN,
    Line,
    Span,
    clock,
    line,
    line_width,
    mib_of,
    muted,
    of_total,
    plural,
    printable,
    whole,
)
from coach.tui.render.table import Cell, Column, LazyRows, Row, Rows, natural, searchable
from coach.tui.render.training import memory_cell, power_cell, use_cell

NODE_COLUMNS = (
    Column("name", "NODE", 14, grow=1),
    Column("state", "STATE", 18),
    Column("cpus", "CPUS", 9, align="right"),
    Column("memory", "MEMORY", 13, align="right", priority=1),
    Column("gpus", "GPUS", 14, grow=1),
    Column("partitions", "PARTITIONS", 14, priority=3, grow=1),
    Column("reason", "REASON", 14, priority=2, grow=3),
    Column("use", "GPU USE", 12, grow=1, is_extra=True),
    Column("gpu_memory", "GPU MEMORY", 12, align="right", is_extra=True),
    Column("power", "POWER", 10, align="right", is_extra=True),
)
_MEASURED_LAYOUTS = (
    (0, "name state cpus gpus use"),
    (100, "name state cpus memory gpus use gpu_memory power reason"),
    (140, "name state cpus memory gpus use gpu_memory power partitions reason"),
)
"""(Least width, columns) for nodes with measured GPUs."""


def measured_columns(width: int) -> tuple[str, ...]:
    """The columns for a list in which some nodes are measured."""
    return tuple([names for least, names in _MEASURED_LAYOUTS if width >= least][-1].split())


def gpu_text(gpus: Iterable[GpuCount]) -> str:
    """GPUs allocated of total, per type: `a100 3/8, h100 –/4`; `–` if there are none."""
    parts = []
    for gpu in gpus:
        count = of_total(gpu.allocated, gpu.total)
        parts.append(f"{printable(gpu.type)} {count}" if gpu.type else count)
    return ", ".join(parts) or UNKNOWN


def nodes_in_order(nodes: Iterable[Node], orders: Sequence[Order[Node]] = ()) -> list[Node]:
    """Sort nodes by `orders`; without them, nodes in trouble first."""
    order = {"critical": 0, "warning": 1}
    ranked = sorted(nodes, key=lambda node: (order.get(node_state_tone(node.state), 2), natural(node.name)))
    return in_order(ranked, orders)


def node_rows(
    nodes: Sequence[Node],
    uses: Mapping[str, DeviceUse] = MappingProxyType({}),
    now_s: float | None = None,
    names: Sequence[str] | None = None,
) -> Rows:
    """One row per node, each made when it comes into sight. `uses` are measurements of the nodes' GPUs by the
    user's trainings; `names` are the names of the nodes, if the caller has them already."""
    keys = [node.name for node in nodes] if names is None else names
    return LazyRows(keys, nodes, lambda node: _node_row(node, uses.get(node.name), now_s))


def empty_nodes_note(has_answer: bool, is_hidden: bool, query: str = "") -> str:
    """The text of an empty table of nodes: hidden by the site, none exist, none match, or not read yet."""
    if is_hidden:
        return hidden_by_site("nodes")
    if not has_answer:
        return "waiting for the first answer…"
    return "No node matches the filter. Esc clears it" if query else "There is no node"


def nodes_title(num_nodes: int, query: str, num_found: int, is_hidden: bool = False) -> str:
    """For example `nodes · 120 · filter "state:idle": 12 of 120`."""
    if is_hidden:
        return "nodes · hidden"
    title = f"nodes · {num_nodes:,}"
    return f'{title} · filter "{printable(query)}": {num_found:,} of {num_nodes:,}' if query else title


def _node_row(node: Node, use: DeviceUse | None, now_s: float | None) -> Row:
    tone = node_state_tone(node.state)
    reason = printable(node.reason or "")
    state = printable(node.state)
    partitions = printable(",".join(node.partitions))
    return Row(
        node.name,
        (
            Cell(printable(node.name)),
            Cell(node_state_sign(node.state) + state, tone),
            Cell(of_total(node.num_cpus_allocated, node.num_cpus)),
            Cell(mib_of(node.memory_allocated_mib, node.memory_mib)),
            Cell(gpu_text(node.gpus)),
            Cell(partitions, "muted"),
            Cell(reason, tone),
            use_cell(use, now_s),
            memory_cell(use),
            power_cell(use),
        ),
        searchable(node.name, state, reason, partitions, gpu_text(node.gpus)),
    )


FreeGpus = Mapping[tuple[str | None, str], Sequence[TypeGpus]]
"""The free GPUs of each partition, by its cluster and name."""


def partition_lines(
    partitions: Iterable[Partition], free: FreeGpus, width: int, max_lines: int, is_hidden: bool = False
) -> list[Line]:
    """The partitions side by side, wrapped; the last line counts those without room."""
    if is_hidden:
        return [line(muted(f" {hidden_by_site('partitions')}"))]
    cells = [
        _partition(partition, free.get((partition.cluster, partition.name), ()))
        for partition in sorted(partitions, key=lambda p: (not p.is_default, p.name))
    ]
    rows: list[list[Line]] = [[]]
    used = 0
    for index, cell in enumerate(cells):
        size = line_width(cell)
        if rows[-1] and used + 4 + size > width - 2:
            if len(rows) == max_lines:
                rows[-1].append(line(muted(f"…and {len(cells) - index} more")))
                break
            rows.append([])
            used = 0
        rows[-1].append(cell)
        used += size + (4 if len(rows[-1]) > 1 else 0)
    return [_spread(row) for row in rows if row]


def _spread(cells: list[Line]) -> Line:
    spans: list[Span] = [Span(" ")]
    for index, cell in enumerate(cells):
        if index:
            spans.append(muted("  · "))
        spans.extend(cell)
    return tuple(spans)


def _partition(partition: Partition, free: Sequence[TypeGpus]) -> Line:
    parts: list[Span] = [Span(printable(partition.name), "strong")]
    if partition.is_default:
        parts.append(muted(" default"))
    if partition.state != "up":
        parts.append(Span(f" ▲ {printable(partition.state)}", "warning"))
    parts.append(Span(f"  {whole(partition.num_nodes_idle)} of {plural(partition.num_nodes, 'node')} idle"))
    for gpus in free:
        text = f", free {whole(gpus.free)} of {gpus.total} {printable(gpus.type) if gpus.type else 'GPUs'}"
        parts.append(Span(text, "good" if gpus.free else ""))
    if not free and partition.num_cpus is not None:
        parts.append(Span(f", cpus {of_total(partition.num_cpus_allocated, partition.num_cpus)}"))
    limit = clock(partition.time_limit_s) if partition.time_limit_s is not None else "no limit"
    parts.append(muted(f", {limit}"))
    return tuple(parts)
