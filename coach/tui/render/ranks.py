"""A map of all ranks of a training. Unusual ranks are marked, and described first in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from coach.analysis.measured.rank_standing import (
    RANK_QUANTITIES,
    RankQuantity,
    Ranks,
    Standing,
    ranks_of,
)
from coach.lookback.history import History
from coach.model.training.run import Run
from coach.render.text import (
    UNKNOWN,
    Line,
    Span,
    clip,
    fit,
    line,
    mib,
    muted,
    number,
    percent,
    plural,
    printable,
    seconds,
    strong,
)
from coach.tui.render.heat import HeatRow, heat_lines

_MOST_ODD = 3
MAX_LISTED = 16
"""Up to this number of ranks, each has its own line."""
_BESIDE = 8
"""The number of ranks in one row if their nodes are unknown."""


def rank_view_lines(
    history: History, run: Run | None, quantity: int | None, width: int, height: int
) -> list[Line]:
    """All ranks in one quantity. `quantity` is its index in RANK_QUANTITIES; None: the quantity in which a
    rank deviates most."""
    ranks = ranks_of(history)
    if not ranks.standings:
        return [line(muted(" no rank has written a step yet"))]
    per_node = run.resources.get("nproc_per_node") if run is not None else None
    per_node = per_node if isinstance(per_node, int) and per_node > 1 else None
    chosen = RANK_QUANTITIES[
        (shown_quantity(history) if quantity is None else quantity) % len(RANK_QUANTITIES)
    ]
    rows = ranks_lines(ranks, chosen, width, height - 1, per_node)
    is_without = run is not None and run.num_gpus == 0
    return [*rows, line(muted(" no GPU was requested"))] if is_without else rows


def shown_quantity(history: History) -> int:
    """The index of the quantity in which a rank deviates most."""
    found = ranks_of(history).oddest
    return RANK_QUANTITIES.index(found[1]) if found is not None else 0


def oddest_line(ranks: Ranks, width: int) -> Line:
    """The rank that deviates most, and by how much."""
    num = len(ranks.standings)
    found = ranks.oddest
    if found is None:
        return clip(line(Span(" ✓ ", "good"), f"{plural(num, 'rank')}, none far from the others"), width)
    each, quantity, distance = found
    where = f" on {printable(each.node)}" if each.node else ""
    return clip(
        line(
            Span(" ▲ ", "warning"),
            strong(f"rank {each.rank}{where}"),
            Span(f": {quantity.name} {_words(quantity, distance)}", "warning"),
            muted(f"  of {plural(num, 'rank')}"),
        ),
        width,
    )


def _words(quantity: RankQuantity, distance: float) -> str:
    if quantity.unit == "steps":
        return f"{distance:.0f} steps behind the median"
    than = "more" if distance > 0 else "less"
    return f"{abs(distance):.0f} points {than} than the median"


def ranks_lines(
    ranks: Ranks, quantity: RankQuantity, width: int, height: int, per_node: int | None
) -> list[Line]:
    """The unusual ranks first, then the map of all ranks in one quantity, or a line for each of a few."""
    rows = [oddest_line(ranks, width)]
    if len(ranks.standings) <= MAX_LISTED:
        return [*rows, *table_lines(ranks, ranks.standings, width)]
    odd = list(dict.fromkeys(each for q in (quantity, *RANK_QUANTITIES) for each, _ in ranks.odd(q)))
    told = table_lines(ranks, odd[:_MOST_ODD], width) if odd else []
    heading = clip(line(strong(f" {quantity.name}"), muted(f"  {quantity.meaning}")), width)
    room = max(2, height - len(rows) - len(told) - 1)
    heat = heat_lines(_heat_rows(ranks, quantity, per_node, width, room), quantity, width, room)
    return [*rows, *told, heading, *heat]


def _heat_rows(
    ranks: Ranks, quantity: RankQuantity, per_node: int | None, width: int, height: int
) -> list[HeatRow]:
    """A row for each node, or for some consecutive ranks if nodes are unknown."""
    size = per_node or _BESIDE
    while per_node is None and math.ceil(len(ranks.standings) / size) >= height and size < width // 2:
        size *= 2
    groups: dict[int, list[tuple[Standing, float | None]]] = {}
    for each, value in ranks.values(quantity):
        groups.setdefault(each.rank // size, []).append((each, value))
    rows = []
    for members in groups.values():
        first, last = members[0][0], members[-1][0]
        node = first.node if first.node is not None and first.node == last.node else None
        name = f"{first.rank}–{last.rank}"
        rows.append(HeatRow(f"{node} {name}" if node else name, tuple(value for _, value in members)))
    return rows


def table_lines(ranks: Ranks, shown: Sequence[Standing], width: int) -> list[Line]:
    """A line for each rank: its node, its step time, its wait for data, its memory."""
    odd = {quantity.name: {each.rank for each, _ in ranks.odd(quantity)} for quantity in RANK_QUANTITIES}
    node_width = 12 if width >= 80 and any(each.node for each in shown) else 0
    head = f" RANK  {fit('NODE', node_width)}   STEP  STEP TIME   DATA WAIT    MEMORY  LOSS"
    rows = [clip(line(muted(head)), width)]
    return [*rows, *(clip(_table_line(each, odd, node_width), width) for each in shown)]


def _table_line(each: Standing, odd: Mapping[str, set[int]], node_width: int) -> Line:
    """`odd` has the unusual ranks, by the name of the quantity."""
    cells = (
        ("step", f"{each.step:>7}"),
        ("step time", f"{seconds(each.step_time_s):>9}"),
        ("data wait", f"{seconds(each.data_time_s)} {percent(each.wait_pct):>3}".rjust(12)),
        ("memory", f"{mib(each.memory_mib):>8}"),
    )
    is_odd = any(each.rank in ranks for ranks in odd.values())
    is_lost = each.loss is not None and not math.isfinite(each.loss)
    row = [Span("▲" if is_odd else " ", "warning"), Span(f"{each.rank:<5} ")]
    row.append(muted(fit(printable(each.node or UNKNOWN), node_width)))
    for name, text in cells:
        is_far = each.rank in odd[name]
        row.append(Span(f"{'▲' if is_far else ' '}{text}", "warning" if is_far else ""))
    row.append(Span(f"  {number(each.loss)}", "critical" if is_lost else ""))
    if each.behind > 1:
        row.append(Span(f"  {each.behind} behind", "warning"))
    return tuple(row)
