"""The nodes and ranks of a run: each value with its age, and each missing measurement with its reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from coach.lookback.history import History
from coach.model.training.metrics import Step
from coach.model.training.telemetry import GpuSample, HostSample, SensorGap
from coach.render.text import (
    Line,
    Span,
    age,
    clip,
    fit,
    line,
    mib,
    muted,
    number,
    percent,
    printable,
    seconds,
    strong,
    whole,
)
from coach.tui.render.curve import bar, sparkline

_RECENT_STEPS = 50
_SMALL_SPREAD = 0.1


def node_lines(
    history: History, gaps: Sequence[SensorGap], has_gpus: bool | None, now_s: float, width: int
) -> list[Line]:
    """CPU, memory and each GPU per node with the age of the value. Each missing measurement is shown once,
    with its reason."""
    rows: list[Line] = []
    nodes = sorted({*history.nodes, *(node for node, _ in history.gpus)})
    for node in nodes:
        hosts = tuple(history.host(node))
        rows.append(_host_line(node, hosts[-1] if hosts else None, hosts, now_s, width))
        for gpu_node, gpu in history.gpus:
            if gpu_node == node:
                samples = tuple(history.gpu(node, gpu))
                rows.append(_gpu_line(samples[-1], samples, now_s, width))
    rows += gap_lines(gaps, has_gpus, width)
    if has_gpus is False and nodes:
        rows.append(line(muted(" no GPU was requested: this run trains on the CPU")))
    return rows or [line(muted(" nothing measured on the nodes yet"))]


def gap_lines(gaps: Sequence[SensorGap], has_gpus: bool | None, width: int) -> list[Line]:
    """Missing measurements, each reason once with its nodes. GPUs that the job did not request are not
    missing."""
    rows: list[Line] = []
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
    return rows


def _host_line(
    node: str, newest: HostSample | None, samples: Sequence[HostSample], now_s: float, width: int
) -> Line:
    name = fit(printable(node), 12 if width >= 70 else 9)
    if newest is None:
        return line(f" {name} ", muted("cpu –"))
    spark_width = max(0, min(24, width - 70))
    cpu = percent(newest.cpu_pct)
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
            Span(bar(share, 6), "accent"),
            f" {cpu:>4}",
            muted(f"{of_cpus:<6}"),
            muted(" mem "),
            f"{memory:<11}",
            Span(spark, "accent"),
            muted(f"  {age(now_s - newest.time_s)} old"),
        ),
        width,
    )


def _gpu_line(newest: GpuSample, samples: Sequence[GpuSample], now_s: float, width: int) -> Line:
    spark_width = max(0, min(24, width - 84))
    used = percent(newest.utilization_pct)
    share = None if newest.utilization_pct is None else newest.utilization_pct / 100
    memory = f"{mib(newest.memory_used_mib)}/{mib(newest.memory_total_mib)}"
    power = whole(newest.power_w)
    limit = "" if newest.power_limit_w is None else f"/{newest.power_limit_w:.0f}"
    spark = sparkline([s.utilization_pct for s in samples], spark_width, 0, 100) if spark_width else ""
    heat = "" if newest.temperature_c is None else f" {newest.temperature_c:.0f}°C"
    return clip(
        line(
            muted(f"   gpu {newest.gpu:<6}"),
            muted("use "),
            Span(bar(share, 6), "accent"),
            f" {used:>4}      ",
            muted(" mem "),
            f"{memory:<11}",
            f" {power}{limit} W{heat} ",
            Span(spark, "accent"),
            muted(f"  {age(now_s - newest.time_s)} old"),
        ),
        width,
    )


def rank_lines(history: History, width: int) -> list[Line]:
    """One line per rank: its node and device, its step time, its memory. The slowest rank is named."""
    ranks = history.ranks
    if not ranks:
        return [line(muted(" no rank has written a step yet"))]
    table = [(rank, tuple(history.steps(rank))[-_RECENT_STEPS:]) for rank in ranks]
    furthest = max(steps[-1].step for _, steps in table)
    times = {rank: _mean([step.step_time_s for step in steps]) for rank, steps in table}
    late = _slowest(times)
    rows: list[Line] = [line(muted(" RANK   STEP  STEP TIME  DATA TIME  LOSS     MEMORY"))]
    for rank, steps in table:
        behind = furthest - steps[-1].step
        note = f" {behind} behind" if behind > 1 else ""
        if late is not None and late[0] == rank:
            note += f" ▲ slowest, +{late[1]:.0%}" if width >= 70 else f" ▲ +{late[1]:.0%}"
        rows.append(clip(_rank_line(rank, steps, times[rank], note), width))
    return rows


def _slowest(times: Mapping[int, float | None]) -> tuple[int, float] | None:
    """The rank with the longest steps, and how much longer they take than the fastest rank's. None if the
    difference is too small."""
    known = {rank: time_s for rank, time_s in times.items() if time_s is not None}
    if len(known) < 2 or not min(known.values()):
        return None
    slowest = max(known, key=lambda rank: known[rank])
    spread = known[slowest] / min(known.values()) - 1
    return (slowest, spread) if spread > _SMALL_SPREAD else None


def _rank_line(rank: int, steps: Sequence[Step], step_time_s: float | None, note: str) -> Line:
    newest = steps[-1]
    is_lost = newest.loss is not None and not math.isfinite(newest.loss)
    return line(
        f" {rank:<4}{newest.step:>7}",
        f"{seconds(step_time_s):>11}",
        f"{seconds(_mean([step.data_time_s for step in steps])):>11}  ",
        Span(f"{number(newest.loss):<9}", "critical" if is_lost else ""),
        f"{mib(newest.memory_allocated_mib):<6}",
        Span(note, "warning"),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if known else None
