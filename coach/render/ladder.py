"""A ladder's table as lines, and as the fields of JSON and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from coach.analysis.comparing.ladder_table import Climbed
from coach.analysis.comparing.steady_state import Estimate
from coach.analysis.spelling.printable import display_width
from coach.render.text import (
    BLANK,
    UNKNOWN,
    Line,
    Span,
    fit,
    hang,
    line,
    mib,
    muted,
    number,
    printable,
    strong,
)

HEADERS = (
    "RUNG",
    "RANKS",
    "SAMPLES/S ± (n)",
    "× FIRST",
    "× PREV",
    "EFF.",
    "STATED",
    "MEMORY",
    "TO ACCURACY",
    "GPU-HOURS",
)


def cells_of(rows: Sequence[Climbed]) -> list[tuple[str, ...]]:
    """The headers, then the cells of each rung. A column without a value is left out."""
    table = [HEADERS, *map(_cells, rows)]
    columns = [column for column in zip(*table, strict=True) if {*column[1:]} != {UNKNOWN}]
    return list(zip(*columns, strict=True))


def ladder_lines(rows: Sequence[Climbed], title: str, width: int) -> list[Line]:
    """The table, then the verdict of each rung in whole. Of columns without room, the last are left out."""
    table = cells_of(rows)
    sizes = [max(map(display_width, column)) for column in zip(*table, strict=True)]
    while len(sizes) > 1 and sum(sizes) + 2 * len(sizes) > width:
        sizes.pop()
    texts = []
    for name, *cells in table:
        shown = zip(cells, sizes[1:], strict=False)
        texts.append(
            f" {fit(name, sizes[0])}" + "".join(f"  {fit(cell, size, 'right')}" for cell, size in shown)
        )
    verdicts = [
        (Span(f" {fit(row.rung.name, sizes[0])}  ", "strong"), Span(printable(verdict_of(row))))
        for row in rows
    ]
    wrapped = [text for row in verdicts for text in hang(row, width)]
    head = [line(strong(f" {printable(title)}")), BLANK, line(muted(texts[0]))]
    return [*head, *map(line, texts[1:]), BLANK, *wrapped]


def verdict_of(row: Climbed) -> str:
    """The verdict, with the place of the document's figure."""
    return row.verdict + (f" ({row.rung.source})" if row.rung.source else "")


def rung_object(row: Climbed) -> dict[str, Any]:
    """One rung in JSON, and with the same names in CSV. None: not measured."""
    return {
        "name": row.rung.name,
        "run_id": row.run_ids[0] if row.run_ids else None,
        "state": row.state,
        "ranks": row.ranks,
        **_fields("samples_per_s", row.throughput),
        "n": row.throughput.num_values if row.throughput is not None else None,
        **_fields("ratio", row.over_first.ratio),
        **_fields("ratio_to_previous", row.over_previous.ratio),
        **_fields("efficiency", row.over_first.efficiency),
        "memory_mib": row.memory_mib,
        "time_to_target": row.target,
        "gpu_hours": row.gpu_hours,
        "stated": row.stated,
        "source": row.rung.source,
        "verdict": row.verdict,
    }


def _fields(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    found = asdict(estimate) if estimate is not None else {}
    return {name: found.get("value"), f"{name}_error": found.get("noise")}


def _cells(row: Climbed) -> tuple[str, ...]:
    rate, ratio, previous = row.throughput, row.over_first.ratio, row.over_previous.ratio
    efficiency = row.over_first.efficiency
    return (
        row.rung.name,
        number(row.ranks),
        UNKNOWN if rate is None else f"{number(rate.value)} ± {number(rate.noise, 2)} ({rate.num_values})",
        UNKNOWN if ratio is None else f"{ratio.value:.2f} ± {ratio.noise or 0.0:.2f}",
        UNKNOWN if previous is None else f"{previous.value:.2f}",
        UNKNOWN if efficiency is None else f"{100 * efficiency.value:.0f} %",
        row.stated or UNKNOWN,
        mib(row.memory_mib),
        row.target or UNKNOWN,
        number(row.gpu_hours, 2),
    )
