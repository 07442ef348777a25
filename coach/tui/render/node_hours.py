"""The last hours of a node: its allocation and its measurements, above one axis.

Slurm reports the allocation; only a sampler inside a job measures the use. The two are never mixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coach.analysis.spelling.printable import printable
from coach.lookback.history import History
from coach.lookback.node_past import NodePast
from coach.model.slurm.cluster import Node
from coach.render.text import UNKNOWN, KeyLabel, Line, clip, line, mib, muted, number, whole
from coach.tui.render.axis import XAxis
from coach.tui.render.chart import Chart, Point, chart_lines
from coach.tui.render.course import gpu_charts_of

MAX_PAST_S = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Measured:
    """A job's measurements of its GPUs on a node."""

    job_id: str
    history: History


def past_lines(
    node: Node,
    past: NodePast,
    measured: Sequence[Measured],
    now_s: float,
    width: int,
    height: int,
    label: KeyLabel,
) -> list[Line]:
    """The allocation since coach was opened, and the measurements, above one axis."""
    starts = [past.since_s] if past.since_s is not None else []
    for each in measured:
        starts += [each.history.gpu(*key)[0].time_s for key in each.history.gpus if key[0] == node.name]
    if not starts:
        return [line(muted(" not checked yet"))]
    start_s = max(now_s - MAX_PAST_S, min(*starts, now_s - 1.0))
    axis = XAxis(start_s, now_s, origin=now_s)
    charts: list[Chart] = []
    names: list[str] = []
    for each in measured:
        keys = [key for key in each.history.gpus if key[0] == node.name]
        found, own_names = gpu_charts_of(each.history, keys, axis, max(1, width - 20))
        if len(measured) > 1:
            found = [replace(chart, title=f"{chart.title}, job {printable(each.job_id)}") for chart in found]
        charts += found
        names = max(names, own_names, key=len)  # each job counts its GPUs from 0
    charts += _allocated(node, past, now_s)
    note = [] if charts[: len(charts) - 3] else [_unmeasured_line(label, width)]
    return [*chart_lines(charts, width, max(8, height - len(note)), axis, names), *note]


def _unmeasured_line(label: KeyLabel, width: int) -> Line:
    words = f" use is not measured here: {label('attach')} on a job of yours measures inside it"
    return clip(line(muted(words)), width)


def _allocated(node: Node, past: NodePast, now_s: float) -> list[Chart]:
    """Charts of the allocated GPUs, CPUs and memory."""
    looks = past.of(node.name)
    num_gpus = sum(gpu.total for gpu in node.gpus)
    return [
        _steps(
            "GPUs allocated", "gpus", [(look.time_s, look.gpus) for look in looks], num_gpus or None, now_s
        ),
        _steps("CPUs allocated", "cpus", [(look.time_s, look.cpus) for look in looks], node.num_cpus, now_s),
        _steps(
            "memory allocated",
            "memory",
            [(look.time_s, look.memory_mib) for look in looks],
            node.memory_mib,
            now_s,
        ),
    ]


def _steps(
    title: str, short: str, looks: Sequence[tuple[float, int | None]], total: int | None, now_s: float
) -> Chart:
    """A chart of a number in % of `total`; each value holds until the next observation."""
    points: list[Point] = []
    previous: float | None = None
    for time_s, value in looks:
        share = 100.0 * value / total if value is not None and total else None
        if points:
            points.append((time_s - 0.001, previous))
        points.append((time_s, share))
        previous = share
    if points:
        points.append((now_s, previous))
    newest = looks[-1][1] if looks else None
    spell = mib if short == "memory" else whole
    told = f"{spell(newest)} of {spell(total)}" if total else UNKNOWN
    now = UNKNOWN if previous is None else f"{number(previous, 3)} %"
    return Chart(title, told, (points,), 100.0, "%", short=short, now=now)
