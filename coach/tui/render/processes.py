"""The processes of one job: the rank of each, and its use of GPU and node."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.training.telemetry import ProcessSample
from coach.tui.render.table import Cell, Column, Row, fit_columns, header_line, natural, row_line
from coach.tui.render.text import UNKNOWN, Line, age, line, mib, muted, printable

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
        UNKNOWN if each.rank is None else str(each.rank),
        UNKNOWN if each.local_rank is None else str(each.local_rank),
        printable(each.node),
        str(each.pid),
        UNKNOWN if each.gpus is None else ",".join(map(str, each.gpus)) or "none",
        mib(each.gpu_memory_mib),
        UNKNOWN if each.cpu_pct is None else f"{each.cpu_pct:.0f}%",
        mib(each.rss_mib),
        UNKNOWN if each.num_threads is None else str(each.num_threads),
        age(now_s - each.time_s),
        printable(each.name),
    )
    return Row("", tuple(Cell(text) for text in texts))
