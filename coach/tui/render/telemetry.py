"""The current use of a job's GPUs in a few lines: each node with the source of its numbers, their age, and
their gaps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coach.analysis.measured.provenance import provenance
from coach.lookback.history import History
from coach.model.training.telemetry import GpuSample, HostSample, SensorGap, StepUse
from coach.render.text import (
    UNKNOWN,
    KeyLabel,
    Line,
    Span,
    clip,
    line,
    line_width,
    muted,
    plural,
    printable,
    strong,
    whole,
    wrap,
)
from coach.tui.question import Answer
from coach.tui.render.answer import answer_line

_MAX_NODES = 8


def telemetry_lines(
    history: History,
    gaps: Iterable[SensorGap],
    error: str | None,
    now_s: float,
    width: int,
    label: KeyLabel,
) -> list[Line]:
    """`error` is why the stream from inside the job has ended; None if it continues, or if there was none."""
    rows = [line(strong(" telemetry"))]
    for node in history.nodes[:_MAX_NODES]:
        told = provenance(history, node, now_s) or UNKNOWN
        first = line("   ", printable(node), muted(f"  {told}"))
        if line_width(first) <= width:
            rows.append(first)
        else:
            rows.append(line("   ", printable(node)))
            rows += [line(muted(f"     {part}")) for part in wrap(told, width - 5)]
        rows.append(line("     ", _host_text(history.host(node)[-1])))
        rows += [line("     ", _gpu_text(history.gpu(*key)[-1])) for key in history.gpus if key[0] == node]
    if len(history.nodes) > _MAX_NODES:
        rows.append(line(muted(f"   and {len(history.nodes) - _MAX_NODES} more nodes")))
    unmeasured = dict.fromkeys((gap.what, gap.because, gap.how) for gap in gaps if gap.what.startswith("gpu"))
    for what, because, how in unmeasured:
        told = f"   {printable(what)} not measured: {printable(because)}"
        rows.append(line(Span(told, "warning"), muted(f"  {printable(how)}")))
    if error is not None:
        rows += [
            line(Span(f"   {printable(error)}", "warning")),
            line(muted(f"   {label('attach')} begins it again")),
        ]
    elif not history.nodes:
        rows.append(
            line(
                muted(
                    f"   not measured: no sampler in this job has been read · {label('attach')} measures "
                    "inside it, after asking"
                )
            )
        )
    return [clip(row, width) for row in rows]


def step_use_lines(
    answer: Answer[Any],
    steps: Iterable[StepUse],
    now_s: float,
    width: int,
    label: KeyLabel,
    since_s: float | None = None,
) -> list[Line]:
    """The values of sstat. They are peaks, so none is shown as a current value.

    `since_s`: the job's start.
    """
    rows = [answer_line("sstat", answer, now_s, label, since_s)]
    for step in steps:
        text = f"step {step.step_id.partition('.')[2]}, {plural(step.num_tasks, 'task')}: "
        text += f"a task had at most {whole(step.max_rss_mib)} MiB"
        if step.gpu_utilization_pct is not None or step.gpu_memory_mib is not None:
            busy, memory = whole(step.gpu_utilization_pct), whole(step.gpu_memory_mib)
            text += f"; its GPUs together {busy} % and {memory} MiB"
        rows.append(line("   ", printable(text)))
    return [clip(row, width) for row in rows]


def _host_text(host: HostSample) -> str:
    used = f"{whole(host.memory_used_mib)} of {whole(host.memory_limit_mib)} MiB"
    return f"CPU {whole(host.cpu_pct)} %   memory {used}"


def _gpu_text(gpu: GpuSample) -> str:
    """The values of one GPU. Utilization comes last, because alone it looks like efficiency."""
    return (
        f"gpu {gpu.gpu}   power {whole(gpu.power_w)} of {whole(gpu.power_limit_w)} W   "
        f"memory {whole(gpu.memory_used_mib)} of {whole(gpu.memory_total_mib)} MiB   "
        f"{whole(gpu.temperature_c)} °C   busy {whole(gpu.utilization_pct)} %"
    )
