"""One job as lines: its head, its GPUs, and all facts in the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coach.analysis.queueing.arrays import format_tasks
from coach.analysis.queueing.free_gpus import GpuSlot, NodeGpus
from coach.analysis.spelling.printable import cut
from coach.model.slurm.cluster import Job, Node, is_final
from coach.render.severity import state_span
from coach.render.text import (
    BLANK,
    UNKNOWN,
    KeyLabel,
    Line,
    Span,
    age,
    clip,
    clock,
    line,
    line_width,
    muted,
    pad,
    printable,
    strong,
    whole,
)
from coach.tui.render.allocation import node_fact_lines
from coach.tui.render.queue import is_own, state_words

_FACT_WIDTH = 30
"""The least width of a column of facts."""
_LEAST_NAME = 16
_GAP = 3


def job_head(job: Job, user: str | None, width: int) -> Line:
    """The head of the job in one line. A long name leaves room for the rest."""
    own = "yours" if is_own(job, user) else f"of {printable(job.user)}"
    told = f"  job {printable(job.job_id)}, {own}, partition {printable(job.partition) or UNKNOWN}"
    head = line(" ", state_span(job.state), "  ")
    name = cut(printable(job.name), max(_LEAST_NAME, width - line_width((*head, Span(told)))))
    return line(*head, strong(name), muted(told))


def held_gpu_lines(slots: Sequence[GpuSlot], width: int) -> list[Line]:
    """The GPUs of a job, by node."""
    by_node: dict[str, list[int]] = {}
    for slot in slots:
        by_node.setdefault(slot.node, []).append(slot.index)
    rows = [
        clip(line(f"   {printable(node)}", muted("  gpu "), format_tasks(indices)), width)
        for node, indices in by_node.items()
    ]
    return rows or [line(muted("   not reported for this job, or its nodes report different GPUs"))]


def facts_line(job: Job, now_s: float, width: int, label: KeyLabel) -> Line:
    """The most important facts in one line."""
    facts = {
        "nodes": printable(job.nodes or ""),
        "gpus": whole(job.num_gpus) if job.num_gpus else "",
        "exit code": whole(job.exit_code) if job.exit_code is not None else "",
        "ended": _ago(job.end_time_s, now_s) if is_final(job.state) else "",
        "used": f"{clock(job.time_used_s)} of {clock(job.time_limit_s)}",
    }
    told = " · ".join(f"{name} {text}" for name, text in facts.items() if text)
    return clip(line(Span(f" {label('view')}", "key"), muted(f" all facts   {told}")), width)


_OLD_S = 30.0
"""Seconds. Older data about nodes are shown with their age."""


def place_node_lines(
    job: Job | None,
    nodes: Sequence[tuple[Node, Sequence[NodeGpus]]],
    now_s: float,
    width: int,
    room: int,
    read_s: float | None = None,
) -> list[Line]:
    """The job's nodes, or its planned nodes, as many as fit. `read_s` is the time at which Slurm reported
    them, which may be before the start of the job."""
    rows: list[Line] = []
    as_of = _as_of(job, now_s, read_s)
    planned = "" if job is None or job.nodes else "planned on "
    for node, free in nodes:
        told = node_fact_lines(node, free, now_s, width)
        more = [BLANK, clip(line(strong(f" {planned}node {printable(node.name)}"), *as_of), width), *told]
        if len(rows) + len(more) > room:
            break
        rows += more
    return rows


def _as_of(job: Job | None, now_s: float, read_s: float | None) -> Line:
    """The age of the data about nodes, if they are old or from before the job's start."""
    if read_s is None:
        return ()
    told = f"   as it was {age(now_s - read_s)} ago"
    if job is not None and job.start_time_s is not None and read_s < job.start_time_s <= now_s:
        return (Span(f"{told}, before this job started", "warning"),)
    return (muted(told),) if now_s - read_s >= _OLD_S else ()


MAIN_FACTS = ("nodes", "gpus", "time used", "time limit", "submitted", "started", "exit code", "work dir")


def job_lines(job: Job, now_s: float, width: int = 0, names: Sequence[str] = ()) -> list[Line]:
    """The facts in the queue about one job, in as many columns as fit. With `names`, only these facts, if
    known."""
    state, reason, _ = state_words(job, now_s)
    facts: Mapping[str, str] = {
        "job id": printable(job.job_id),
        "name": printable(job.name),
        "user": printable(job.user),
        "account": printable(job.account or UNKNOWN),
        "qos": printable(job.qos or UNKNOWN),
        "partition": printable(job.partition),
        "state": state,
        "reason": reason or UNKNOWN,
        "nodes": printable(job.nodes or UNKNOWN),
        "num nodes": whole(job.num_nodes),
        "cpus": whole(job.num_cpus),
        "gpus": whole(job.num_gpus),
        "time used": clock(job.time_used_s),
        "time left": clock(job.time_left_s),
        "time limit": clock(job.time_limit_s),
        "submitted": _ago(job.submit_time_s, now_s),
        "started": _ago(None if job.state == "PENDING" else job.start_time_s, now_s),
        "ended" if is_final(job.state) else "ends": _ago(job.end_time_s, now_s),
        "exit code": whole(job.exit_code),
        "work dir": printable(job.work_dir or UNKNOWN),
    }
    rows = [
        line(muted(f" {name:<12}"), strong(text) if name == "state" else Span(text))
        for name, text in facts.items()
        if not names or (name in names and text != UNKNOWN)
    ]
    return in_columns(rows, width)


def in_columns(rows: Sequence[Line], width: int) -> list[Line]:
    """Arrange lines in as many columns as fit, to be read downwards. Each column is as wide as its
    longest line. A line longer than half the width stands alone, below."""
    long = [row for row in rows if line_width(row) > max(_FACT_WIDTH, width // 2)]
    short = [row for row in rows if row not in long]
    for num_columns in range(min(4, max(1, width // _FACT_WIDTH)), 1, -1):
        height = -(-len(short) // num_columns)
        columns = [short[first : first + height] for first in range(0, len(short), max(1, height))]
        widths = [max(line_width(row) for row in column) + _GAP for column in columns]
        if len(columns) > 1 and sum(widths) <= width:
            spare = min(8, (width - sum(widths)) // len(columns))
            return [*_beside(columns, [each + spare for each in widths]), *long]
    return list(rows)


def _beside(columns: Sequence[Sequence[Line]], widths: Sequence[int]) -> list[Line]:
    """Join columns of lines, each padded to its width."""
    return [
        tuple(
            span
            for column, size in zip(columns, widths, strict=True)
            for span in (pad(column[index], size) if index < len(column) else ())
        )
        for index in range(len(columns[0]))
    ]


def _ago(time_s: float | None, now_s: float) -> str:
    if time_s is None:
        return UNKNOWN
    if time_s > now_s:
        return f"in {clock(time_s - now_s)}"
    return f"{clock(now_s - time_s)} ago"
