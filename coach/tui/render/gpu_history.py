"""The past hour of some GPUs, above one time axis with the loss."""

from __future__ import annotations

from collections.abc import Sequence

from coach.analysis.gpu_quantities import (
    MEMORY,
    POWER,
    SM_ACTIVITY,
    TEMPERATURE,
    UTILIZATION,
    Band,
    GpuKey,
    Quantity,
    bands,
)
from coach.model.history import History
from coach.tui.render.chart import Chart, chart_lines
from coach.tui.render.text import UNKNOWN, Line, line, muted, number

MAX_PAST_S = 3600.0
_ALWAYS = (POWER, UTILIZATION, MEMORY, TEMPERATURE)


def history_lines(
    history: History, gpus: Sequence[GpuKey], now_s: float, width: int, height: int
) -> list[Line]:
    """Charts of the loss and of each quantity: of one GPU its value, of several the least, the median and the most."""
    firsts = [history.gpu(*key)[0].time_s for key in gpus]
    timed = [point for point in history.curve if point.time_s is not None]
    firsts = firsts or [point.time_s for point in timed[:1] if point.time_s is not None]
    if not firsts:
        return [line(muted(" nothing measured yet"))]
    start_s = max(now_s - MAX_PAST_S, min(*firsts, now_s - 1.0))
    loss = [
        (point.time_s, point.loss)
        for point in timed
        if point.time_s is not None and start_s <= point.time_s <= now_s
    ]
    charts = [Chart("loss", number(loss[-1][1] if loss else None), (loss,))]
    has_sm = any(history.gpu(*key)[-1].sm_activity_pct is not None for key in gpus)
    quantities = (SM_ACTIVITY, *_ALWAYS) if has_sm else _ALWAYS
    found = bands(history, gpus, quantities, start_s, now_s, max(1, width))
    for quantity in quantities if gpus else ():
        charts.append(_chart(quantity, found[quantity.name], len(gpus)))
    return chart_lines(charts, width, height, start_s, now_s)


def _chart(quantity: Quantity, rows: Sequence[Band], num_gpus: int) -> Chart:
    newest = rows[-1] if rows else None
    middle = newest.middle if newest is not None else None
    told = UNKNOWN if middle is None else f"{number(middle, 3)} {quantity.unit}"
    lines = [[(row.time_s, row.middle) for row in rows]]
    if num_gpus > 1 and newest is not None and newest.low is not None and newest.high is not None:
        told = f"median {told}, {number(newest.low, 3)} to {number(newest.high, 3)}"
        lines = [[(r.time_s, r.low) for r in rows], *lines, [(r.time_s, r.high) for r in rows]]
    top = 100.0 if quantity.unit == "%" else None
    return Chart(quantity.name, told, tuple(lines), top)
