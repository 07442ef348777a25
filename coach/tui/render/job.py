"""One job as lines: what it is, which GPUs it has, and all that the queue knows about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coach.analysis.queueing.arrays import format_tasks
from coach.analysis.queueing.free_gpus import GpuSlot
from coach.model.slurm.cluster import Job, is_final
from coach.tui.render.queue import is_own, state_words
from coach.tui.render.severity import state_span
from coach.tui.render.text import (
    UNKNOWN,
    KeyLabel,
    Line,
    Span,
    clip,
    clock,
    line,
    muted,
    printable,
    strong,
    whole,
)


def job_head(job: Job, user: str | None) -> Line:
    """What it is, in a line."""
    own = "yours" if is_own(job, user) else f"of {printable(job.user)}"
    return line(
        " ",
        state_span(job.state),
        strong(f"  {printable(job.name)}"),
        muted(f"  job {printable(job.job_id)}, {own}, partition {printable(job.partition) or UNKNOWN}"),
    )


def held_gpu_lines(slots: Sequence[GpuSlot], width: int) -> list[Line]:
    """Which GPUs a job has, by node."""
    by_node: dict[str, list[int]] = {}
    for slot in slots:
        by_node.setdefault(slot.node, []).append(slot.index)
    rows = [
        clip(line(f"   {printable(node)}", muted("  gpu "), format_tasks(indices)), width)
        for node, indices in by_node.items()
    ]
    return rows or [line(muted("   not told for this job, or its nodes do not say the same"))]


def facts_line(job: Job, now_s: float, width: int, label: KeyLabel) -> Line:
    """The facts that are wanted most, in a line."""
    facts = {
        "nodes": printable(job.nodes or ""),
        "gpus": whole(job.num_gpus) if job.num_gpus else "",
        "exit code": whole(job.exit_code) if job.exit_code is not None else "",
        "ended": _ago(job.end_time_s, now_s) if is_final(job.state) else "",
        "used": f"{clock(job.time_used_s)} of {clock(job.time_limit_s)}",
    }
    told = " · ".join(f"{name} {text}" for name, text in facts.items() if text)
    return clip(line(Span(f" {label('view')}", "key"), muted(f" all facts   {told}")), width)


def job_lines(job: Job, now_s: float) -> list[Line]:
    """All that the queue knows about one job."""
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
        "ended": _ago(job.end_time_s, now_s),
        "exit code": whole(job.exit_code),
        "work dir": printable(job.work_dir or UNKNOWN),
    }
    return [
        line(muted(f" {name:<12}"), strong(text) if name == "state" else Span(text))
        for name, text in facts.items()
    ]


def _ago(time_s: float | None, now_s: float) -> str:
    if time_s is None:
        return UNKNOWN
    if time_s > now_s:
        return f"in {clock(time_s - now_s)}"
    return f"{clock(now_s - time_s)} ago"
