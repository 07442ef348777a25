"""Several runs above one axis, by step or by time. Each has a letter on its line, and its own stroke.

Colour alone never identifies a line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

from coach.analysis.jobs.progress import recent_rate
from coach.lookback.history import CurvePoint, History
from coach.render.severity import state_span
from coach.render.text import (
    UNKNOWN,
    KeyLabel,
    Line,
    Span,
    clip,
    fit,
    line,
    muted,
    number,
    printable,
    seconds,
    short_id,
    strong,
)
from coach.tui.render.axis import XAxis
from coach.tui.render.chart import STROKES, Chart, Point, chart_lines, led_by, newest_value

MAX_RUNS = 6
LETTERS = "ABCDEF"


@dataclass(frozen=True, slots=True)
class Overlaid:
    """One of the runs in the charts."""

    run_id: str
    state: str | None
    history: History
    differs: str = ""
    """The difference of its launch from the others, in words."""


@dataclass(frozen=True, slots=True)
class OverlayView:
    """The user's choices for the charts."""

    is_by_time: bool = False
    is_log: bool = False
    first: int = 0
    """Index of the quantity that is drawn first and largest."""
    next_words: str = "by time"
    """The name of the next view, for the key that leads to it."""


@dataclass(frozen=True, slots=True)
class _Quantity:
    title: str
    short: str
    of: Callable[[CurvePoint], float | None]
    unit: str = ""
    top: float | None = None
    from_zero: bool = True


_QUANTITIES = (
    _Quantity("loss", "loss", lambda point: point.loss, from_zero=False),
    _Quantity("throughput", "samples/s", lambda point: point.samples_per_s, " samples/s"),
    _Quantity("tokens", "tokens/s", lambda point: point.tokens_per_s, " tokens/s"),
    _Quantity("data wait", "data wait", lambda point: point.wait_pct, " %", 100.0),
    _Quantity("step time", "step time", lambda point: point.step_time_s, " s"),
)


def summary_lines(runs: Sequence[Overlaid], width: int) -> list[Line]:
    """A line for each run: its letter and stroke, its state, its progress, its loss and its throughput."""
    name_width = min(30, max(len(short_id(run.run_id)) for run in runs)) if runs else 0
    rows = [
        line(muted(f" {'':8}{fit('RUN', name_width)}  STATE           STEPS      LOSS  SAMPLES/S  DIFFERS"))
    ]
    for letter, stroke, run in zip(LETTERS, cycle(STROKES), runs, strict=False):
        curve = run.history.curve
        steps = f"{curve[-1].step:,}" if curve else UNKNOWN
        state = state_span(run.state)
        rows.append(
            clip(
                line(
                    strong(f" {letter} "),
                    stroke.mark,
                    f" {fit(short_id(run.run_id), name_width)}  ",
                    Span(fit(state.text, 13), state.tone),
                    f"{steps:>8}  {number(curve[-1].loss if curve else None):>8}",
                    f"  {number(recent_rate(curve)):>9}  ",
                    muted(printable(run.differs)),
                ),
                width,
            )
        )
    return rows


def overlay_lines(
    runs: Sequence[Overlaid], view: OverlayView, width: int, height: int, label: KeyLabel
) -> list[Line]:
    """The quantities of all runs above one axis in `width` × `height` cells."""
    shown = runs[:MAX_RUNS]
    series = [_points_at(run.history.curve, is_by_time=view.is_by_time) for run in shown]
    ends = [points[-1][0] for points in series if points]
    if not ends:
        return [line(muted(" no step of these runs is known"))]
    firsts = [points[0][0] for points in series if points]
    axis = XAxis(0.0 if view.is_by_time else min(firsts), max(*ends, 1.0), is_time=view.is_by_time)
    charts = []
    for quantity in _QUANTITIES:
        lines = tuple([(at, quantity.of(point)) for at, point in points] for points in series)
        if any(y is not None for points in lines for _, y in points):
            charts.append(_chart(quantity, lines, is_log=view.is_log))
    if not charts:
        return [line(muted(" their steps have neither a loss nor a rate nor a time"))]
    charts = led_by(charts, view.first)
    told = _how(view, label)
    return [told, *chart_lines(_large(charts, height - 1), width, height - 1, axis)]


def _large(charts: Sequence[Chart], height: int) -> list[Chart]:
    """As many charts as can be drawn large: a strip cannot show several lines."""
    return list(charts[: max(1, height // 8)])


def _how(view: OverlayView, label: KeyLabel) -> Line:
    """A line that names the axes, and the keys that change them."""
    by = "time since its first step" if view.is_by_time else "step"
    other = view.next_words
    scale = "even" if view.is_log else "logarithmic"
    return line(
        muted(f" by {by}   "),
        Span(label("view"), "key"),
        muted(f" {other}   "),
        Span(label("scale"), "key"),
        muted(f" {scale} loss   "),
        Span(label("quantity"), "key"),
        muted(" next quantity"),
    )


def _points_at(curve: Sequence[CurvePoint], *, is_by_time: bool) -> list[tuple[float, CurvePoint]]:
    if not is_by_time:
        return [(float(point.step), point) for point in curve]
    timed = [(point.time_s, point) for point in curve if point.time_s is not None]
    return [(time_s - timed[0][0], point) for time_s, point in timed]


def _chart(quantity: _Quantity, lines: tuple[Sequence[Point], ...], *, is_log: bool) -> Chart:
    spell = seconds if quantity.unit == " s" else lambda value: f"{number(value, 3)}{quantity.unit}"
    told = "   ".join(
        f"{letter} {UNKNOWN if value is None else spell(value)}"
        for letter, value in zip(LETTERS, map(newest_value, lines), strict=False)
    )
    is_log = is_log and quantity.title == "loss"
    return Chart(
        quantity.title,
        told + (" · logarithmic" if is_log else ""),
        lines,
        quantity.top,
        "%" if quantity.top else "s" if quantity.unit == " s" else "",
        is_log=is_log,
        from_zero=quantity.from_zero,
        short=quantity.short,
        letters=LETTERS[: len(lines)],
    )
