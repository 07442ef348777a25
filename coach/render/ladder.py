"""A ladder's table as cells: for a terminal, for Markdown, and for a spreadsheet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coach.analysis.comparing.ladder_table import Climbed
from coach.analysis.comparing.speedup import Speedup
from coach.analysis.comparing.steady_state import Estimate
from coach.render.text import UNKNOWN, mib, number

HEADERS = (
    *("RUNG", "RANKS", "SAMPLES/S ± (n)", "× FIRST", "× PREV", "EFF.", "MEMORY", "STATED"),
    *("TO ACCURACY", "GPU-HOURS"),
)


def table_of(rows: Sequence[Climbed]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headers and cells. A column without a value is left out; the verdict stands below (`verdicts_of`)."""
    cells = [_cells(row) for row in rows]
    kept = [at for at in range(len(HEADERS)) if any(row[at] != UNKNOWN for row in cells)]
    return tuple(HEADERS[at] for at in kept), [tuple(row[at] for at in kept) for row in cells]


def verdicts_of(rows: Sequence[Climbed]) -> list[tuple[str, str]]:
    """Name of a rung and its verdict, with the place of the document's figure."""
    return [
        (row.rung.name, row.verdict + (f" ({row.rung.source})" if row.rung.source else "")) for row in rows
    ]


def rung_object(row: Climbed) -> dict[str, Any]:
    """One rung in JSON, and with the same names in CSV. None: not measured."""
    rung, rate, over = row.rung, row.throughput, row.over_first
    return {
        "name": rung.name,
        "recipe": rung.recipe,
        "run_id": row.run_ids[0] if row.run_ids else None,
        "num_runs": len(row.run_ids),
        "state": row.state,
        "ranks": row.ranks,
        "samples_per_s": _value(rate),
        "samples_per_s_error": None if rate is None else rate.noise,
        "n": None if rate is None else rate.num_values,
        "ratio": _value(over.ratio),
        "ratio_error": None if over.ratio is None else over.ratio.noise,
        "ratio_to_previous": _value(row.over_previous.ratio),
        "efficiency": _value(over.efficiency),
        "memory_mib": row.memory_mib,
        "time_to_target": row.target,
        "gpu_hours": row.gpu_hours,
        "stated": row.stated,
        "stated_low": rung.low,
        "stated_high": rung.high,
        "source": rung.source or None,
        "verdict": row.verdict,
    }


def _cells(row: Climbed) -> tuple[str, ...]:
    efficiency, previous = row.over_first.efficiency, row.over_previous.ratio
    return (
        row.rung.name,
        UNKNOWN if row.ranks is None else str(row.ranks),
        _rate(row.throughput),
        _ratio(row.over_first),
        UNKNOWN if previous is None else f"{previous.value:.2f}",
        UNKNOWN if efficiency is None else f"{100 * efficiency.value:.0f} %",
        mib(row.memory_mib),
        row.stated or UNKNOWN,
        row.target or UNKNOWN,
        UNKNOWN if row.gpu_hours is None else f"{row.gpu_hours:.2g}",
    )


def _rate(rate: Estimate | None) -> str:
    if rate is None:
        return UNKNOWN
    noise = "" if rate.noise is None else f" ± {number(rate.noise, 2)}"
    return f"{number(rate.value)}{noise} ({rate.num_values})"


def _ratio(speedup: Speedup) -> str:
    ratio = speedup.ratio
    return UNKNOWN if ratio is None else f"{ratio.value:.2f} ± {ratio.noise or 0.0:.2f}"


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value
