"""The past hour of some GPUs, above one time axis with the loss; each process with its use of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from coach.analysis.measured.gpu_quantities import (
    MEMORY,
    POWER,
    SM_ACTIVITY,
    TEMPERATURE,
    UTILIZATION,
    Band,
    GpuKey,
    Spread,
    bands,
    spread,
)
from coach.lookback.history import History
from coach.model.training.telemetry import ProcessSample
from coach.render.text import UNKNOWN, Line, age, line, mib, muted, number, percent, printable, whole
from coach.tui.render.axis import XAxis
from coach.tui.render.chart import STROKES, Chart, Point, chart_lines
from coach.tui.render.gpus import name_among, newest_samples, short_name_of
from coach.tui.render.table import Cell, Column, Row, fit_columns, header_line, natural, row_line

MAX_PAST_S = 3600.0
_ALWAYS = (POWER, UTILIZATION, MEMORY, TEMPERATURE)
_OF_MANY = ("median", "most", "least")
_SHORT = {
    POWER.name: "power",
    MEMORY.name: "memory",
    TEMPERATURE.name: "temp",
    UTILIZATION.name: "GPU use",
    SM_ACTIVITY.name: "SM active",
}
"""Short names of quantities, for strips."""


def history_lines(
    history: History, gpus: Sequence[GpuKey], now_s: float, width: int, height: int
) -> list[Line]:
    """Charts of the loss and of each quantity: a line for each of a few GPUs; for more GPUs, the median, the
    highest and the lowest."""
    losses = [(point.time_s, point.loss) for point in history.curve if point.time_s is not None]
    firsts = [history.gpu(*key)[0].time_s for key in gpus] or [time_s for time_s, _ in losses[:1]]
    if not firsts:
        return [line(muted(" nothing measured yet"))]
    start_s = max(now_s - MAX_PAST_S, min(*firsts, now_s - 1.0))
    charts = [_loss_chart([(time_s, loss) for time_s, loss in losses if start_s <= time_s <= now_s])]
    is_each = len(gpus) <= len(STROKES)
    if gpus:
        charts += _gpu_charts(history, gpus, start_s, now_s, max(1, width), is_each=is_each)
    names = [name_among(key, gpus) for key in gpus] if is_each else _OF_MANY
    axis = XAxis(start_s, now_s, origin=now_s)
    return chart_lines(charts, width, height, axis, names if len(gpus) > 1 else ())


def _loss_chart(loss: list[Point]) -> Chart:
    return Chart("loss", number(loss[-1][1] if loss else None), (loss,))


def _gpu_charts(
    history: History, gpus: Sequence[GpuKey], start_s: float, now_s: float, width: int, *, is_each: bool
) -> Iterator[Chart]:
    """A chart of each quantity. `is_each`: with a line for each GPU; else with the median, the highest and
    the lowest of all."""
    has_sm = any(history.gpu(*key)[-1].sm_activity_pct is not None for key in gpus)
    quantities = (SM_ACTIVITY, *_ALWAYS) if has_sm else _ALWAYS
    groups = [[key] for key in gpus] if is_each else [gpus]
    found = [bands(history, group, quantities, start_s, now_s, width) for group in groups]
    samples = list(newest_samples(history, gpus, now_s).values())
    for quantity in quantities:
        lines = _lines([each[quantity.name] for each in found], is_each=is_each)
        told = _told(spread(quantity, samples), len(gpus))
        yield Chart(
            quantity.name,
            told,
            lines,
            100.0 if quantity.unit == "%" else None,
            quantity.unit if quantity.unit == "%" else "°",
            short=_SHORT.get(quantity.name, ""),
            now=told.split(",")[0].removeprefix("median "),
        )


def _lines(rows: Sequence[Sequence[Band]], *, is_each: bool) -> tuple[list[Point], ...]:
    if is_each:
        return tuple([(band.time_s, band.middle) for band in each] for each in rows)
    (all_,) = rows
    return (
        [(band.time_s, band.middle) for band in all_],
        [(band.time_s, band.high) for band in all_],
        [(band.time_s, band.low) for band in all_],
    )


def _told(found: Spread | None, num_gpus: int) -> str:
    """The newest values, and the spread of the GPUs, in words."""
    if found is None:
        return UNKNOWN
    middle = f"{number(found.middle, 3)} {found.quantity.unit}"
    if num_gpus == 1:
        return middle
    low, high = number(found.low, 3), number(found.high, 3)
    if low == high:
        return f"{middle}, all alike"
    ends = f"{low} ({short_name_of(found.low_gpu)}) to {high} ({short_name_of(found.high_gpu)})"
    return f"median {middle}, {ends}, {number(found.high - found.low, 2)} apart"


_COLUMNS = (
    Column("rank", "RANK", 4, 0, "right"),
    Column("local_rank", "LOCAL", 5, 5, "right"),
    Column("node", "NODE", 10, 1, grow=1),
    Column("pid", "PID", 8, 0, "right"),
    Column("gpus", "GPU", 5, 1, "right"),
    Column("gpu_memory", "GPU MEM", 7, 0, "right"),
    Column("cpu", "CPU", 6, 0, "right"),
    Column("rss", "RSS", 6, 0, "right"),
    Column("threads", "THREADS", 7, 4, "right"),
    Column("age", "AGE", 5, 2, "right"),
    Column("name", "PROCESS", 10, 3, grow=1),
)


def process_lines(processes: Iterable[ProcessSample], now_s: float, width: int) -> list[Line]:
    """The lines of the processes, by rank; below, those without a rank, by node."""
    layout = fit_columns(_COLUMNS, width)
    ordered = sorted(
        processes,
        key=lambda each: (each.rank is None, each.rank or 0, natural(each.node), -(each.rss_mib or 0)),
    )
    if not ordered:
        return [line(muted(" no process of the job was measured"))]
    return [header_line(layout), *(row_line(_row(each, now_s), layout) for each in ordered)]


def searched(process: ProcessSample) -> str:
    """The text that a filter searches."""
    gpus = " ".join(f"gpu{gpu}" for gpu in process.gpus or ())
    rank = "" if process.rank is None else f"rank{process.rank}"
    return f"{process.node} {rank} {gpus} {process.pid} {process.name}".lower()


def _row(each: ProcessSample, now_s: float) -> Row:
    texts = (
        whole(each.rank),
        whole(each.local_rank),
        printable(each.node),
        str(each.pid),
        UNKNOWN if each.gpus is None else ",".join(map(str, each.gpus)) or "none",
        mib(each.gpu_memory_mib),
        percent(each.cpu_pct),
        mib(each.rss_mib),
        whole(each.num_threads),
        age(now_s - each.time_s),
        printable(each.name),
    )
    return Row("", tuple(Cell(text) for text in texts))
