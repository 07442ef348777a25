"""The cluster as strips: a block per node, by the type of its GPUs. Allocation and measured use are separate,
because an allocated GPU may be idle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from coach.analysis.queueing.node_strip import NodeShare, Strip
from coach.lookback.glance import DeviceUse, together
from coach.render.text import (
    Line,
    Span,
    age,
    clip,
    fit,
    line,
    line_width,
    muted,
    plural,
    printable,
    strong,
)
from coach.tui.render.curve import sparkline

_TAKEN, _FREE, _BLOCKED, _UNKNOWN = "█", "░", "×", "·"
_LABEL = 9
_LEAST_CELLS = 8
_MOST_CELLS = 120
_WIDE = 110
_SCALE = len(", 1,000 in a block")
_ALL_OF_A_CELL = 0.995
_NEARLY_ALL = 0.85


@dataclass(frozen=True, slots=True)
class DrawnStrip:
    """A strip drawn at one width. It is valid until the nodes change."""

    strip: Strip
    cells: str
    nodes_per_cell: int
    """The number of nodes in one cell. 0: a cell is one GPU, and a blank separates two nodes."""
    told: Line


def drawn_strips(strips: Sequence[Strip], width: int) -> tuple[DrawnStrip, ...]:
    """The parts of the strips that do not depend on measurements."""
    return tuple(_drawn(strip, width) for strip in strips)


def _drawn(strip: Strip, width: int) -> DrawnStrip:
    told = _told(strip, width)
    nodes = strip.nodes
    room = min(_MOST_CELLS, max(_LEAST_CELLS, width - _LABEL - line_width(told) - 4))
    if width >= _WIDE and len(nodes) > room:
        room = max(_LEAST_CELLS, min(room, width - _LABEL - line_width(told) - 4 - _SCALE))
    if strip.has_gpus and strip.total + len(nodes) - 1 <= room:
        return DrawnStrip(strip, " ".join(map(_devices, nodes)), 0, told)
    size = max(1, -(-len(nodes) // room))
    cells = "".join(_cell(nodes[start : start + size]) for start in range(0, len(nodes), size))
    if size > 1 and width >= _WIDE:
        told = (*told, muted(f", {size:,} in a block"))
    return DrawnStrip(strip, cells, size, told)


def strip_lines(
    drawn: Sequence[DrawnStrip], uses: Mapping[str, DeviceUse], now_s: float, width: int, most: int
) -> list[Line]:
    """For each type of GPU, a line with the allocation, and a line with the use if it is measured.

    `uses` are by node. The last line counts the types without room.
    """
    rows: list[Line] = []
    for index, each in enumerate(drawn):
        shown = [*_lines(each, uses, now_s, width)][:most]
        if index and len(rows) + len(shown) > most:
            left = plural(len(drawn) - index, "more type")
            rows[-1] = (*clip(rows[-1], width - len(left) - 5), muted(f"  …and {left}"))
            break
        rows += shown
    return rows


def _lines(drawn: DrawnStrip, uses: Mapping[str, DeviceUse], now_s: float, width: int) -> Iterator[Line]:
    strip = drawn.strip
    kind = "GPUs" if strip.kind is None else "CPU only" if not strip.has_gpus else printable(strip.kind)
    yield clip(line(" ", strong(fit(kind, _LABEL)), Span(drawn.cells, "accent"), "  ", *drawn.told), width)
    here = {name: use for name, use in uses.items() if name in strip.places} if strip.has_gpus else {}
    measured = together(here.values())
    if measured is None or measured.use_pct is None:
        return
    told = f" on {plural(measured.num_devices, 'GPU')} of yours, {age(now_s - measured.time_s)} old"
    cells = Span(_use_cells(drawn, here), "good")
    share = f"{measured.use_pct:.0f}% use measured"
    yield clip(line(" ", muted(fit("in use", _LABEL)), cells, "  ", share, muted(told)), width)


def _told(strip: Strip, width: int) -> Line:
    """The numbers of a strip, beside its blocks."""
    what = "GPUs" if strip.has_gpus else "CPUs"
    is_wide = width >= _WIDE
    spans = [
        Span(f"{_count(strip.allocated)}/{strip.total:,} {what}{' allocated' if is_wide else ' taken'}"),
        Span(f", {_count(strip.free)} free", "good" if strip.free else ""),
    ]
    if strip.num_blocked:
        words = " not usable" if is_wide else ""
        spans.append(Span(f", {_BLOCKED} {strip.num_blocked:,}{words}", "warning"))
    if is_wide:
        spans.append(muted(f" · {len(strip.nodes):,} {'node' if len(strip.nodes) == 1 else 'nodes'}"))
    return tuple(spans)


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _devices(node: NodeShare) -> str:
    """A sign for each GPU of a node."""
    if node.allocated is None:
        return _UNKNOWN * node.total
    free = node.free or 0
    return _TAKEN * node.allocated + _FREE * free + _BLOCKED * max(0, node.total - node.allocated - free)


def _cell(group: Sequence[NodeShare]) -> str:
    """The allocated share of these nodes, as the height of a block."""
    total = sum(each.total for each in group if each.allocated is not None)
    known = [each.allocated for each in group if each.allocated is not None]
    if not known or not total:
        return _UNKNOWN
    taken = sum(known) / total
    if not taken:
        return _BLOCKED if sum(each.num_blocked for each in group) * 2 > total else _FREE
    return _TAKEN if taken >= _ALL_OF_A_CELL else sparkline([min(taken, _NEARLY_ALL)], 1, 0.0, 1.0)


def _use_cells(drawn: DrawnStrip, uses: Mapping[str, DeviceUse]) -> str:
    """The use of the GPUs, below the blocks of their nodes."""
    if not drawn.nodes_per_cell:
        return " ".join(_device_uses(each, uses.get(each.node)) for each in drawn.strip.nodes)
    by_cell: dict[int, list[DeviceUse]] = {}
    for node, use in uses.items():
        by_cell.setdefault(drawn.strip.places[node] // drawn.nodes_per_cell, []).append(use)
    cells = [_UNKNOWN] * len(drawn.cells)
    for cell, of_cell in by_cell.items():
        use_of_cell = together(of_cell)
        cells[cell] = sparkline([use_of_cell.use_pct if use_of_cell else None], 1, 0.0, 100.0)
    return "".join(cells)


def _device_uses(node: NodeShare, use: DeviceUse | None) -> str:
    if use is None or use.use_pct is None:
        return _UNKNOWN * node.total
    num = min(use.num_devices, node.total)
    return sparkline([use.use_pct] * num, num, 0.0, 100.0) + _UNKNOWN * (node.total - num)
