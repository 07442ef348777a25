"""The values under the cursor explained: the meaning of each, its source, its age, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from coach.analysis.explaining.texts import TABLES
from coach.analysis.explaining.words import Explained, explain_column, explain_reason
from coach.analysis.measured.gpu_quantities import GpuKey
from coach.analysis.queueing.pending_reasons import explain_job
from coach.lookback.history import History
from coach.model.judging.finding import Finding
from coach.model.slurm.cluster import Job, is_final
from coach.model.snapshot import SourceStatus
from coach.model.training.telemetry import GpuSample
from coach.render.severity import severity_sign, severity_tone
from coach.render.text import (
    BLANK,
    UNKNOWN,
    Line,
    Span,
    age,
    beside,
    clip,
    line,
    mib,
    muted,
    printable,
    strong,
    wrap,
)
from coach.tui.render.table import Cell, Column

TWO_COLUMNS = 110
"""From this width on, the meaning of a value stands beside its source."""
_FIRST = ("state", "reason", "why", "finding", "summary", "left", "gpus")
_NAME = 13
_SHOWN_GPUS = 4


def explain_cells(
    table: str, cells: Sequence[tuple[Column, Cell]], job: Job | None = None
) -> tuple[Explained, ...]:
    """Explanations of the cells of a row; cells that need an action come first. `job` is the job of the row,
    if it has one: its reason is explained at length."""
    named = "findings" if table == "verdicts" else table
    source = TABLES.get(named)
    found = []
    for column, cell in sorted(_to_explain(cells, job), key=lambda each: _place(each[0].name)):
        why = explain_job(job) if job is not None and column.name == "reason" else None
        told = explain_reason(why, source) if why is not None else None
        if told is None and cell.text.strip():
            told = explain_column(named, column.name, column.title, cell.text.strip(), source)
        if told is not None:
            found.append(told if not _is_over(column, job) else replace(told, to_do=""))
    return tuple(found)


def _to_explain(cells: Sequence[tuple[Column, Cell]], job: Job | None) -> list[tuple[Column, Cell]]:
    """The cells without empty ones. Of a job, the columns `reason` and `why` show the same, Slurm's reason or
    coach's verdict: the column that fits it is kept."""
    unfit = "" if job is None else "why" if explain_job(job) is not None else "reason"
    return [
        (column, cell)
        for column, cell in cells
        if (cell.text.strip() or column.name == "reason") and column.name != unfit
    ]


def _is_over(column: Column, job: Job | None) -> bool:
    """True for the time that an ended job had left: nothing can be done about it."""
    return column.name == "left" and job is not None and is_final(job.state)


def _place(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def explain_finding(finding: Finding) -> Explained:
    """A finding in two lines; its page has the rest."""
    fix = next((fix.title for fix in finding.fixes), "")
    name = f"{severity_sign(finding.severity).text} {finding.rule}"
    proof = next((printable(each.text) for each in finding.evidence), "")
    return Explained(name, printable(finding.summary), f"a {finding.severity.word} finding: {proof}",
                     "coach's rules, on the logs, metrics and telemetry that were read", fix)  # fmt: skip


def explain_gpus(history: History, gpus: Sequence[GpuKey]) -> tuple[Explained, ...]:
    """The newest samples of these GPUs explained, quantity by quantity."""
    samples = [history.gpu(*key)[-1] for key in gpus if history.gpu(*key)]
    if not samples:
        return ()
    newest_s = max(sample.time_s for sample in samples)
    found = []
    for name, title in _GPU_VALUES:
        values = [f"{sample.gpu}: {value}" for sample in samples if (value := _gpu_value(sample, name))]
        told = explain_column("gpus", name, title, "  ".join(values[:_SHOWN_GPUS]), None) if values else None
        if told is not None:
            more = f"  … {len(values) - _SHOWN_GPUS} more" if len(values) > _SHOWN_GPUS else ""
            found.append(replace(told, value=told.value + more, time_s=newest_s))
    return tuple(found)


_GPU_VALUES = (
    ("utilization", "UTILIZATION"),
    ("sm", "SM ACTIVE"),
    ("power", "POWER"),
    ("memory", "MEMORY"),
    ("clock", "SM CLOCK"),
    ("reasons", "HELD BY"),
    ("temperature", "TEMPERATURE"),
)


def _gpu_value(sample: GpuSample, name: str) -> str:
    match name:
        case "utilization":
            return _number(sample.utilization_pct, " %")
        case "sm":
            return _number(sample.sm_activity_pct, " %")
        case "power":
            limit = f" of {sample.power_limit_w:.0f}" if sample.power_limit_w else ""
            return f"{sample.power_w:.0f}{limit} W" if sample.power_w is not None else ""
        case "memory":
            if sample.memory_used_mib is None:
                return ""
            return f"{mib(sample.memory_used_mib)} of {mib(sample.memory_total_mib)}"
        case "clock":
            return _number(sample.sm_clock_mhz, " MHz")
        case "temperature":
            return _number(sample.temperature_c, " °C")
        case _:
            return ", ".join(printable(each) for each in sample.clocks_event_reasons or ())


def _number(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.0f}{unit}"


def explained_lines(
    values: Sequence[Explained],
    finding: Finding | None,
    sources: Mapping[str, SourceStatus],
    now_s: float,
    width: int,
) -> list[Line]:
    """The lines of the page, in two columns if there is room."""
    rows: list[Line] = []
    for told in values:
        rows += [BLANK] if rows else []
        is_finding = finding is not None and told is values[0]
        tone = severity_tone(finding.severity) if finding is not None and is_finding else ""
        name = f" {printable(told.name):<{_NAME}}"
        first = line(strong(name), Span(printable(told.value) or UNKNOWN, tone or "accent"))
        rows.append(clip(first, width))
        origin = printable(told.origin) + _old(told, sources, now_s)
        if width < TWO_COLUMNS:
            rows += _labelled("is", printable(told.what), width)
            rows += _labelled("to do", printable(told.to_do), width)
            rows += _labelled("from", origin, width)
            continue
        half = width // 2
        left = [
            *_labelled("is", printable(told.what), half),
            *_labelled("to do", printable(told.to_do), half),
        ]
        rows += beside(left, _labelled("from", origin, width - half), half)
    return rows


def _labelled(label: str, text: str, width: int) -> list[Line]:
    parts = wrap(text, max(20, width - _NAME - 3))
    return [
        line(muted(f"   {label if not index else '':<{_NAME - 2}}"), part) for index, part in enumerate(parts)
    ]


def _old(told: Explained, sources: Mapping[str, SourceStatus], now_s: float) -> str:
    time_s = told.time_s
    if time_s is None and told.source is not None:
        status = sources.get(told.source)
        time_s = status.data_time_s if status is not None else None
    return "" if time_s is None else f" · {age(max(0.0, now_s - time_s))} old"
