"""Ended jobs as rows and in full: how they ended, how well they used their resources, and the sources of the
numbers."""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.slurm.accounting import PastJob
from coach.model.slurm.cluster import is_final
from coach.render.severity import job_state_tone
from coach.render.text import UNKNOWN, Line, age, clock, mib, percent, printable, short_id, whole
from coach.tui.render.pending import labelled
from coach.tui.render.table import Cell, Column, Row, searchable

HISTORY_COLUMNS = (
    Column("job_id", "JOB ID", 10, grow=2),
    Column("name", "NAME", 9, grow=3),
    Column("state", "STATE", 13, grow=1),
    Column("exit", "EXIT", 4, align="right", priority=4),
    Column("ended", "ENDED", 10, align="right"),
    Column("used", "USED", 10, align="right"),
    Column("use_time", "OF LIMIT", 8, align="right", priority=2),
    Column("use_cpu", "CPU", 4, align="right"),
    Column("use_mem", "MEM", 4, align="right"),
    Column("use_gpu", "GPU", 4, align="right"),
    Column("gpus", "GPUS", 4, align="right", priority=5),
    Column("partition", "PARTITION", 9, priority=6),
    Column("source", "SAID BY", 7, priority=3),
)
SOURCES = {
    "sacct": ("sacct", "the accounting of Slurm"),
    "run": ("run", "its run directory"),
    "seen": ("seen", "the queue, when it was last seen there"),
}


def past_key(past: PastJob) -> str:
    """The key of a row. It has more than the job id, because Slurm uses ids again after years."""
    return f"{past.job.job_id} {past.job.submit_time_s}"


def history_rows(jobs: Iterable[PastJob], now_s: float) -> list[Row]:
    return [_row(past, now_s) for past in jobs]


def _row(past: PastJob, now_s: float) -> Row:
    job, used = past.job, past.efficiency
    state, name, partition = _state(past), printable(job.name), printable(job.partition)
    source = SOURCES.get(past.source, (printable(past.source), ""))[0]
    ended = UNKNOWN if job.end_time_s is None else f"{age(now_s - job.end_time_s)} ago"
    return Row(
        past_key(past),
        (
            Cell(short_id(job.job_id)),
            Cell(name),
            Cell(state, job_state_tone(job.state) if is_final(job.state) else "muted"),
            Cell(whole(job.exit_code)),
            Cell(ended),
            Cell(clock(job.time_used_s)),
            Cell(percent(used.time_pct)),
            Cell(percent(used.cpu_pct)),
            Cell(percent(used.memory_pct)),
            Cell(percent(used.gpu_pct)),
            Cell(whole(job.num_gpus)),
            Cell(partition),
            Cell(source, "muted"),
        ),
        searchable(printable(job.job_id), name, state, partition, source),
    )


def _state(past: PastJob) -> str:
    """How the job ended. If coach missed its end, the last known state is marked as not final."""
    state = printable(past.job.state)
    return state if is_final(past.job.state) else f"{UNKNOWN} was {state}"


def efficiency_lines(past: PastJob, now_s: float, width: int) -> list[Line]:
    """How the job ended and which resources it used, with the sources."""
    job, used = past.job, past.efficiency
    said = SOURCES.get(past.source, ("", past.source))[1]
    seen = "" if past.last_seen_s is None else f", {age(now_s - past.last_seen_s)} ago"
    of_limit = f"{clock(job.time_used_s)} of {clock(job.time_limit_s)}, {percent(used.time_pct)}"
    memory = f"{percent(used.memory_pct)}: {mib(used.memory_used_mib)} of {mib(used.memory_asked_mib)}"
    return [
        *labelled("ended as", _state(past), width, is_strong=True),
        *labelled("said by", f"{said}{seen}", width),
        *labelled("time", of_limit, width),
        *labelled("cpu", f"{percent(used.cpu_pct)} of {whole(job.num_cpus)} CPUs", width),
        *labelled("memory", memory, width),
        *labelled("gpu", f"{percent(used.gpu_pct)} of {whole(job.num_gpus)} GPUs", width),
    ]
