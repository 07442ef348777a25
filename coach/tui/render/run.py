"""One run: what it is, how it goes, what its nodes and ranks do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from coach.model.history import CurvePoint, History
from coach.model.metrics import Step
from coach.model.run import Run
from coach.model.snapshot import TargetSnapshot
from coach.model.telemetry import GpuSample, HostSample, SensorGap
from coach.tui.render.curve import bar, sparkline
from coach.tui.render.finding import value_text
from coach.tui.render.severity import state_span
from coach.tui.render.text import (
    UNKNOWN,
    Line,
    Span,
    Tone,
    age,
    clip,
    clock,
    fit,
    line,
    mib,
    muted,
    number,
    plural,
    printable,
    seconds,
    strong,
)

_RECENT_STEPS = 50


def summary_lines(
    run: Run | None,
    target: TargetSnapshot | None,
    state: str | None,
    newest: Step | None,
    now_s: float,
    width: int,
) -> list[Line]:
    """State, size, times and progress; then the parameters; then where it comes from."""
    parts: list[Span] = [Span(" "), state_span(state)]
    if run is not None:
        parts.extend((muted("  "), strong(printable(run.recipe)), muted(f"  {size_text(run)}")))
        if run.job_id and run.job_id != run.run_id:
            parts.append(muted(f"  job {printable(run.job_id)}"))
    parts.append(Span(f"  {times_text(run, target, now_s)}"))
    rows = [clip(tuple(parts), width)]
    progress: list[Span] = []
    if newest is not None:
        progress.append(strong(f" step {newest.step}"))
        if newest.epoch is not None:
            progress.append(muted(f"  epoch {newest.epoch}"))
    if run is not None:
        text = parameters_text(run.parameters)
        progress.append(muted(f"  {text}" if progress else f" {text}"))
        if run.device.get("type"):
            device = printable(str(run.device.get("name") or run.device["type"]))
            progress.append(muted(f"  on {device}"))
        if run.dataset.get("is_synthetic"):
            progress.append(Span("  generated data", "info"))
    if progress:
        rows.append(clip(tuple(progress), width))
    if run is not None and run.parent_run_id:
        fix = f": {printable(run.fix.title)} ({run.fix.rule})" if run.fix else ""
        rows.append(
            clip(
                line(
                    muted(" child of "),
                    Span(printable(run.parent_run_id), "accent"),
                    fix,
                    Span("   c", "key"),
                    " compares",
                ),
                width,
            )
        )
    return rows


def size_text(run: Run) -> str:
    nodes, ranks = run.resources.get("num_nodes"), run.resources.get("nproc_per_node")
    gpus = run.resources.get("gpus_per_node")
    if not isinstance(nodes, int):
        return UNKNOWN
    text = plural(nodes, "node")
    if isinstance(ranks, int):
        text += f" × {plural(ranks, 'rank')}"
    if isinstance(gpus, int):
        text += f", {plural(gpus, 'GPU')} each" if gpus else ", no GPU asked for"
    return text


def times_text(run: Run | None, target: TargetSnapshot | None, now_s: float) -> str:
    """Time used and left, from the queue where it knows, else from the run directory."""
    job = target.job if target is not None else None
    if job is not None and job.time_used_s is not None and not (target and target.has_ended):
        left = f", {clock(job.time_left_s)} left" if job.time_left_s is not None else ""
        return f"{clock(job.time_used_s)} used{left}"
    if run is None or run.started_time_s is None:
        return "not started" if run is not None and not (target and target.has_ended) else ""
    ended = run.ended_time_s
    if target is not None and target.exit is not None and target.exit.ended_time_s is not None:
        ended = target.exit.ended_time_s
    if ended is not None:
        return f"ran {clock(ended - run.started_time_s)}, ended {age(now_s - ended)} ago"
    used = now_s - run.started_time_s
    limit = run.resources.get("time_limit_s")
    left = f", {clock(limit - used)} left" if isinstance(limit, (int, float)) else ""
    return f"{clock(used)} used{left}"


_FIRST_PARAMETERS = ("lr", "batch_size", "epochs", "max_steps", "optimizer", "num_workers")


def parameters_text(parameters: Mapping[str, Any]) -> str:
    """The parameters that matter most first: `lr 0.05  batch_size 64 …`."""
    names = [name for name in _FIRST_PARAMETERS if name in parameters]
    names += [name for name in parameters if name not in names]
    return "  ".join(f"{printable(name)} {value_text(parameters[name])}" for name in names)


def loss_points(curve: Sequence[CurvePoint]) -> list[tuple[float, float | None]]:
    return [(point.step, point.loss) for point in curve]


def throughput_points(curve: Sequence[CurvePoint]) -> list[tuple[float, float | None]]:
    return [(point.step, point.samples_per_s) for point in curve]


def newest_step(history: History) -> Step | None:
    """The last step of the rank that is furthest."""
    last = [tuple(history.steps(rank))[-1:] for rank in history.ranks]
    return max((steps[0] for steps in last if steps), key=lambda step: step.step, default=None)


def recent_rate(curve: Sequence[CurvePoint]) -> float | None:
    """Throughput of all ranks over the last tenth of the run."""
    rates = [p.samples_per_s for p in curve if p.samples_per_s is not None]
    newest = rates[-max(1, len(rates) // 10) :]
    return sum(newest) / len(newest) if newest else None


def step_time_lines(curve: Sequence[CurvePoint], width: int) -> list[Line]:
    """Data time against step time: a bar of the share, and the share over the run."""
    timed = [p for p in curve if p.step_time_s]
    if not timed:
        return [line(muted(" step time: not measured yet"))]
    newest = timed[-max(1, len(timed) // 10) :]
    steps = sum(p.num_steps for p in newest)
    step_time = sum((p.step_time_s or 0.0) * p.num_steps for p in newest) / steps
    waited = [(p.data_time_s, p.num_steps) for p in newest if p.data_time_s is not None]
    data_time = sum(d * n for d, n in waited) / sum(n for _, n in waited) if waited else None
    share = data_time / step_time if data_time is not None and step_time else None
    bar_width = max(6, min(20, width - 44))
    tone: Tone = "warning" if share is not None and share > 0.3 else ""
    percent = UNKNOWN if share is None else f"{share:.0%}"
    first = line(
        strong(" step "),
        f"{seconds(step_time):>8}",
        muted("  data "),
        f"{seconds(data_time):>8}",
        "  ",
        Span(bar(share, bar_width), tone or "accent"),
        Span(f" {percent} waits for data", tone),
    )
    shares = [
        p.data_time_s / p.step_time_s if p.data_time_s is not None and p.step_time_s else None for p in timed
    ]
    spark = sparkline(_squeezed(shares, width - 20), max(1, width - 20), 0.0, 1.0).strip()
    second = line(muted(" share over the run "), Span(spark, "accent"))
    return [clip(first, width), clip(second, width)]


def _squeezed(values: Sequence[float | None], width: int) -> list[float | None]:
    """At most `width` values: neighbours averaged."""
    if width <= 0 or len(values) <= width:
        return list(values)
    result: list[float | None] = []
    for index in range(width):
        part = [
            v
            for v in values[index * len(values) // width : (index + 1) * len(values) // width]
            if v is not None and math.isfinite(v)
        ]
        result.append(sum(part) / len(part) if part else None)
    return result


def node_lines(
    history: History, gaps: Sequence[SensorGap], has_gpus: bool | None, now_s: float, width: int
) -> list[Line]:
    """CPU, memory and each GPU per node with the age of the value; what was not measured is said once, with its reason."""
    rows: list[Line] = []
    nodes = sorted({*history.nodes, *(node for node, _ in history.gpus)})
    for node in nodes:
        hosts = tuple(history.host(node))
        rows.append(_host_line(node, hosts[-1] if hosts else None, hosts, now_s, width))
        for gpu_node, gpu in history.gpus:
            if gpu_node == node:
                samples = tuple(history.gpu(node, gpu))
                rows.append(_gpu_line(samples[-1], samples, now_s, width))
    seen: dict[tuple[str, str], list[str]] = {}
    for gap in gaps:
        topic = gap.what.split(".", 1)[0]
        if topic == "gpu" and has_gpus is False:
            continue
        seen.setdefault((topic, gap.because), []).append(gap.node)
    for (topic, because), where in seen.items():
        text = f" {printable(topic)} not measured: {printable(because)}"
        rows.append(
            clip(line(muted(text), muted(f"  ({', '.join(map(printable, sorted(set(where))))})")), width)
        )
    if has_gpus is False and nodes:
        rows.append(line(muted(" no GPU was asked for: this run trains on CPU")))
    return rows or [line(muted(" nothing measured on the nodes yet"))]


def _host_line(
    node: str, newest: HostSample | None, samples: Sequence[HostSample], now_s: float, width: int
) -> Line:
    name = fit(printable(node), 12)
    if newest is None:
        return line(f" {name} ", muted("cpu –"))
    spark_width = max(0, min(24, width - 62))
    cpu = UNKNOWN if newest.cpu_pct is None else f"{newest.cpu_pct:.0f}%"
    of_cpus = "" if newest.num_cpus is None else f" of {newest.num_cpus}"
    memory = mib(newest.memory_used_mib) + (
        f"/{mib(newest.memory_limit_mib)}" if newest.memory_limit_mib is not None else ""
    )
    share = None if newest.cpu_pct is None else newest.cpu_pct / 100
    spark = sparkline([s.cpu_pct for s in samples], spark_width, 0, 100) if spark_width else ""
    return clip(
        line(
            strong(f" {name} "),
            muted("cpu "),
            Span(bar(share, 8), "accent"),
            f" {cpu:>4}",
            muted(f"{of_cpus:<6}"),
            muted(" mem "),
            f"{memory:<12}",
            Span(spark, "accent"),
            muted(f"  {age(now_s - newest.time_s)} old"),
        ),
        width,
    )


def _gpu_line(newest: GpuSample, samples: Sequence[GpuSample], now_s: float, width: int) -> Line:
    spark_width = max(0, min(24, width - 76))
    used = UNKNOWN if newest.utilization_pct is None else f"{newest.utilization_pct:.0f}%"
    share = None if newest.utilization_pct is None else newest.utilization_pct / 100
    memory = f"{mib(newest.memory_used_mib)}/{mib(newest.memory_total_mib)}"
    power = UNKNOWN if newest.power_w is None else f"{newest.power_w:.0f}"
    limit = "" if newest.power_limit_w is None else f"/{newest.power_limit_w:.0f}"
    spark = sparkline([s.utilization_pct for s in samples], spark_width, 0, 100) if spark_width else ""
    heat = "" if newest.temperature_c is None else f" {newest.temperature_c:.0f}°C"
    return clip(
        line(
            muted(f"   gpu {newest.gpu:<6}"),
            muted("use "),
            Span(bar(share, 8), "accent"),
            f" {used:>4}      ",
            muted(" mem "),
            f"{memory:<12}",
            f" {power}{limit} W{heat} ",
            Span(spark, "accent"),
            muted(f"  {age(now_s - newest.time_s)} old"),
        ),
        width,
    )


def rank_lines(history: History, width: int) -> list[Line]:
    """One line per rank: where it is, how long its steps take, what memory it holds. The slowest is named."""
    ranks = history.ranks
    if not ranks:
        return [line(muted(" no rank has written a step yet"))]
    table = [(rank, tuple(history.steps(rank))[-_RECENT_STEPS:]) for rank in ranks]
    times = {rank: _mean([s.step_time_s for s in steps]) for rank, steps in table}
    known = {rank: value for rank, value in times.items() if value is not None}
    furthest = max(steps[-1].step for _, steps in table)
    slowest = max(known, key=lambda rank: known[rank]) if len(known) > 1 else None
    spread = (
        (max(known.values()) / min(known.values()) - 1) if len(known) > 1 and min(known.values()) else 0.0
    )
    rows: list[Line] = [line(muted(" RANK    STEP      STEP TIME   DATA TIME  LOSS      MEMORY"))]
    for rank, steps in table:
        newest = steps[-1]
        behind = furthest - newest.step
        note = f"  {behind} behind" if behind > 1 else ""
        if rank == slowest and spread > 0.1:
            note += f"  ▲ slowest, +{spread:.0%}"
        is_lost = newest.loss is not None and not math.isfinite(newest.loss)
        rows.append(
            clip(
                line(
                    f" {rank:<6}{newest.step:>6}  ",
                    f"{seconds(times[rank]):>12}",
                    f"{seconds(_mean([s.data_time_s for s in steps])):>12}  ",
                    Span(f"{number(newest.loss):<9}", "critical" if is_lost else ""),
                    f" {mib(newest.memory_allocated_mib):<8}",
                    Span(note, "warning"),
                ),
                width,
            )
        )
    return rows


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if known else None
