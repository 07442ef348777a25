"""The course of a training as charts above one axis: loss, throughput, wait for data, and its GPUs.

Events are marked on that axis, and the time span of a finding is shaded. It is separate from the job's page,
so that the GPUs screen and a comparison draw the same charts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from coach.analysis.measured.gpu_course import course, shown_gpus
from coach.analysis.measured.gpu_quantities import GpuKey
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.lookback.history import History, throughput
from coach.model.judging.finding import Diagnosis
from coach.model.training.metrics import MetricEvent
from coach.model.training.telemetry import GpuSample
from coach.render.severity import severity_sign, severity_tone
from coach.render.text import UNKNOWN, Line, Tone, number, seconds
from coach.tui.render.axis import XAxis
from coach.tui.render.chart import (
    BLANK_CELL,
    STROKES,
    Chart,
    Mark,
    Notes,
    Point,
    Stretch,
    chart_lines,
    led_by,
    newest_value,
)
from coach.tui.render.gpus import name_among

MIN_TIMED = 0.5
"""The least share of points with a time that gives an axis of time."""
_MAX_STRETCHES = 2
_MAX_MARKS = 400
_EVENTS: dict[str, tuple[str, str, Tone]] = {
    "epoch_end": ("E", "epoch end", "muted"),
    "eval": ("V", "evaluation", "info"),
    "target": ("T", "target reached", "good"),
    "checkpoint": ("C", "checkpoint", "good"),
    "resume": ("R", "restart", "warning"),
}
"""The signs of events. If several events share a cell, the last sign in this order shows."""


@dataclass(frozen=True, slots=True)
class CourseView:
    """The user's choices for the charts."""

    is_log: bool = False
    """True if the loss has a logarithmic scale."""
    first: int = 0
    """Index of the chart that is drawn first and largest."""
    tokens_per_sample: int | None = None
    """The number of tokens per sample, if samples are token sequences."""


def axis_of(history: History, start_s: float | None, now_s: float, *, is_live: bool) -> XAxis | None:
    """The axis of all charts of a run: time if the steps have times or there are no steps, else steps. None
    if nothing was measured."""
    curve = history.curve
    timed = [point.time_s for point in curve if point.time_s is not None]
    if curve and len(timed) < MIN_TIMED * len(curve):
        return XAxis(curve[0].step - curve[0].num_steps + 1, curve[-1].step, is_time=False)
    firsts = [series.times[0] for key in history.gpus if (series := history.gpu_series(*key)).times]
    lasts = [series.times[-1] for key in history.gpus if (series := history.gpu_series(*key)).times]
    if not timed and not firsts:
        return None
    first_s = min([*timed[:1], *firsts])
    origin_s = start_s if start_s is not None and start_s <= first_s else first_s
    last_s = max([*timed[-1:], *lasts])
    return XAxis(origin_s, max(origin_s + 1.0, now_s if is_live else last_s, last_s))


def course_lines(
    history: History,
    axis: XAxis,
    notes: Notes,
    width: int,
    height: int,
    view: CourseView,
    next_key: str = "",
    events: Sequence[MetricEvent] = (),
) -> list[Line]:
    """The charts in `width` × `height` cells. The losses of evaluations among the `events` are drawn beside
    the training loss."""
    of_steps = step_charts(history, axis, view, events)
    gpu_charts, names = gpu_charts_of(history, history.gpus, axis, max(1, width - 10))
    charts = [*of_steps[:1], *gpu_charts, *of_steps[1:]]
    if not charts:
        return []
    charts = led_by(charts, view.first)
    if charts[0].title == "loss" and len(charts[0].lines) > 1:
        name = "evaluation, its loss dashed"
        marks = [replace(mark, name=name) if mark.sign == "V" else mark for mark in notes.marks]
        notes = replace(notes, marks=marks)
    return chart_lines(charts, width, height, axis, names, notes, next_key)


def _rate_text(rate: float | None, unit: str, tokens_per_sample: int | None) -> str:
    text = f"{number(rate)} {unit}"
    if rate is None or tokens_per_sample is None or unit != "samples/s":
        return text
    return f"{text} · {number(rate * tokens_per_sample)} tokens/s"


def step_charts(
    history: History, axis: XAxis, view: CourseView, events: Sequence[MetricEvent] = ()
) -> list[Chart]:
    """Charts of loss, samples/s or tokens/s, and step time with the wait for data in it; empty without
    steps."""
    curve = history.curve
    if not curve:
        return []
    at = [point.time_s if axis.is_time else float(point.step) for point in curve]
    losses = _points(at, [point.loss for point in curve])
    unit, speeds = throughput(curve)
    rates = _points(at, speeds)
    shares = _points(at, [point.wait_pct for point in curve])
    times = _points(at, [point.step_time_s for point in curve])
    held_out = _held_out(events, axis)
    newest = curve[-1]
    share = newest_value(shares)
    charts = [
        Chart(
            "loss",
            " · ".join(
                filter(
                    None,
                    (number(newest.loss), _held_out_words(held_out), "logarithmic" * view.is_log),
                )
            ),
            (losses, held_out) if held_out else (losses,),
            has_own_legend=True,
            is_log=view.is_log,
            now=number(newest.loss, 3),
            trouble=_lost(history),
        ),
        Chart(
            "throughput",
            _rate_text(newest_value(rates), unit, view.tokens_per_sample),
            (rates,),
            from_zero=True,
            short=unit,
            now=number(newest_value(rates), 3),
        ),
        Chart(
            "data wait",
            f"{UNKNOWN if share is None else f'{share:.0f}'} % of a step waits for data",
            (shares,),
            100.0,
            "%",
            now=UNKNOWN if share is None else f"{share:.0f} %",
        ),
        Chart(
            "step time",
            seconds(newest_value(times)),
            (times,),
            unit="s",
            from_zero=True,
            now=seconds(newest_value(times)),
        ),
    ]
    if unit not in ("samples/s", "tokens/s"):
        del charts[1]  # the step time shows it
    return [chart for chart in charts if chart.title == "loss" or newest_value(chart.lines[0]) is not None]


def _held_out(events: Sequence[MetricEvent], axis: XAxis) -> list[Point]:
    """The losses of evaluations, on held-out data, by their place on the axis."""
    found: list[Point] = []
    for event in events:
        at, loss = event.time_s if axis.is_time else event.step, event.fields.get("loss")
        if event.event == "eval" and at is not None and isinstance(loss, int | float):
            found.append((float(at), float(loss)))
    return sorted(found, key=lambda point: point[0])


def _held_out_words(held_out: Sequence[Point]) -> str:
    """The newest validation loss behind a piece of its line; empty without evaluations."""
    if not held_out:
        return ""
    return f"{STROKES[1].mark.text.rstrip(BLANK_CELL)} validation {number(held_out[-1][1])}"


def _points(at: Sequence[float | None], values: Iterable[float | None]) -> list[Point]:
    return [(x, y) for x, y in zip(at, values, strict=True) if x is not None]


def _lost(history: History) -> str:
    """The step or epoch at which the loss was first not finite, in words; empty if it was always finite.

    A point of the curve is the mean of several steps: it does not know the step.
    """
    first = history.first_not_finite(min(history.ranks))
    if first is None:
        return ""
    newest = next((point.loss for point in reversed(history.curve) if point.loss is not None), None)
    is_over = newest is not None and math.isfinite(newest)
    return f"not finite {'at' if is_over else 'from'} {first.counter.word} {first.step}"


def gpu_charts_of(
    history: History, gpus: Sequence[GpuKey], axis: XAxis, num_points: int
) -> tuple[list[Chart], list[str]]:
    """Charts of utilization, power and memory of the GPUs, as far as measured, and the names of the lines in
    each chart."""
    shown = shown_gpus(history, gpus) if axis.is_time else []
    if not shown:
        return [], []
    names = [f"{each.among} {name_among(each.key, gpus)}".lstrip() for each in shown]
    charts = []
    for of in _GPU_COLUMNS:
        wholes = _all_or_none([of.whole(history.gpu_series(*each.key).samples[-1]) for each in shown])
        lines = [
            _scaled(course(history.gpu_series(*each.key), of.column, axis.start, axis.end, num_points), whole)
            for each, whole in zip(shown, wholes, strict=True)
        ]
        if any(newest_value(points) is not None for points in lines):
            among = f" {shown[0].among} of {len(gpus)}" if shown[0].among else ""
            charts.append(_gpu_chart(of, lines, wholes, among))
    return charts, names if len(gpus) > 1 else []


@dataclass(frozen=True, slots=True)
class _GpuColumn:
    """A quantity of GPU samples, and its value for 100 %."""

    column: str
    title: str
    short: str
    unit: str
    whole: Callable[[GpuSample], float | None]


_GPU_COLUMNS = (
    _GpuColumn("utilization_pct", "GPU utilization", "GPU use", "", lambda gpu: 100.0),
    _GpuColumn("power_w", "GPU power", "GPU power", "W", lambda gpu: gpu.power_limit_w),
    _GpuColumn("memory_used_mib", "GPU memory", "GPU mem", "MiB", lambda gpu: gpu.memory_total_mib),
)


def _all_or_none(wholes: Sequence[float | None]) -> Sequence[float | None]:
    """The values for 100 %, or none of them if one is unknown: the lines of a chart have one unit."""
    return wholes if all(wholes) else [None] * len(wholes)


def _scaled(points: list[Point], whole: float | None) -> list[Point]:
    """The points in % of `whole`; unchanged if that is unknown."""
    return [(at, None if y is None else 100.0 * y / whole) for at, y in points] if whole else points


def _gpu_chart(
    of: _GpuColumn, lines: Sequence[Sequence[Point]], wholes: Sequence[float | None], among: str
) -> Chart:
    is_share = all(wholes)
    newest = f"{number(newest_value(lines[0]), 3)} {'%' if is_share else of.unit}"
    limit = f" of {_limit(of.unit, wholes[0] or 0.0)}" if of.unit and is_share else ""
    return Chart(
        of.title,
        newest + limit + among,
        tuple(lines),
        100.0 if is_share else None,
        "%" if is_share else "",
        short=of.short,
        now=newest,
    )


def _limit(unit: str, whole: float) -> str:
    return f"{whole:.0f} W" if unit == "W" else f"{whole / 1024:.0f} GiB"


def notes_of(
    events: Sequence[MetricEvent],
    checkpoints: Iterable[tuple[float, int]],
    diagnosis: Diagnosis | None,
    axis: XAxis,
) -> Notes:
    """The events on this axis, and the time spans of the first findings that have a start."""
    marks = [
        Mark(at, sign, name, tone)
        for event, (sign, name, tone) in _EVENTS.items()
        for at in _places(events, event, axis)
    ]
    if not any(mark.sign == "C" for mark in marks):
        marks += [Mark(s if axis.is_time else step, "C", "checkpoint", "good") for s, step in checkpoints]
    marks = [mark for mark in marks if axis.start <= mark.at <= axis.end]
    return Notes(marks[-_MAX_MARKS:], _stretches(diagnosis, axis))


def _places(events: Sequence[MetricEvent], name: str, axis: XAxis) -> list[float]:
    found = [
        at
        for event in events
        if event.event == name and (at := event.time_s if axis.is_time else event.step) is not None
    ]
    return [float(at) for at in found]


def _stretches(diagnosis: Diagnosis | None, axis: XAxis) -> list[Stretch]:
    if diagnosis is None or not axis.is_time or why_withheld(diagnosis):
        return []
    return [
        Stretch(
            max(each.since_s, axis.start),
            axis.end,
            each.rule,
            severity_sign(each.severity).text.strip() or "▲",
            severity_tone(each.severity),
        )
        for each in diagnosis.findings
        if each.since_s is not None and each.since_s <= axis.end
    ][:_MAX_STRETCHES]
