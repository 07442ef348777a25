"""A sweep as lines: one for each value, with a bar."""

from __future__ import annotations

from coach.analysis.comparing.steady_state import Estimate
from coach.analysis.comparing.sweep_table import OUT_OF_MEMORY, WORLD_SIZE, Group, Point
from coach.analysis.comparing.time_to_target import TimeToTarget, not_reached_words
from coach.tui.render.severity import job_state_tone
from coach.tui.render.text import (
    BLANK,
    UNKNOWN,
    Line,
    Span,
    clip,
    fit,
    line,
    mib,
    muted,
    number,
    printable,
    seconds,
    strong,
    wrap,
)

_COLUMNS = (("SAMPLES/S", 16), ("RATIO", 7), ("EFFICIENCY", 10), ("STEP", 9), ("DATA", 9), ("MEMORY", 8))
_BAR = 20


def group_lines(group: Group, width: int) -> list[Line]:
    """The table. Columns without room are cut at the right."""
    head = fit(group.parameter.upper(), 12, "right") + "".join(
        fit(_title(title, group), size + 2, "right") for title, size in _COLUMNS
    )
    rows = [
        line(strong(f" {printable(group.recipe)}"), muted(f"  a run for each {printable(group.parameter)}")),
        BLANK,
        line(muted(f" {head}  RESULT")),
    ]
    rows += [clip(_point_line(point), width) for point in group.points]
    said = (
        "efficiency: samples/s per rank, against the fewest ranks"
        if group.parameter == WORLD_SIZE
        else "of best: samples/s against the best of the group"
    )
    if group.scaling_words:
        texts = (text for said in group.scaling_words for text in wrap(said, width - 2))
        rows += [BLANK, *(line(f" {text}") for text in texts)]
    rows += [BLANK, line(muted(f" {said}; ± is half the 95 % interval of the steady part"))]
    if any(point.target is not None for point in group.points):
        rows.append(line(muted(" after the result: the training time to the target accuracy")))
    return rows


def _title(title: str, group: Group) -> str:
    return "OF BEST" if title == "EFFICIENCY" and group.parameter != WORLD_SIZE else title


def _point_line(point: Point) -> Line:
    cells = (
        _rate(point.throughput),
        UNKNOWN if point.ratio is None else f"× {point.ratio:.3g}",
        UNKNOWN if point.efficiency is None else f"{point.efficiency:.0%}",
        seconds(point.step_time.value if point.step_time else None),
        seconds(point.data_time.value if point.data_time else None),
        mib(point.memory_mib),
    )
    text = fit(printable(str(point.value)), 12, "right") + "".join(
        fit(cell, size + 2, "right") for cell, (_, size) in zip(cells, _COLUMNS, strict=True)
    )
    filled = round(_BAR * min(1.0, point.efficiency)) if point.efficiency is not None else 0
    tone = "info" if point.result == OUT_OF_MEMORY else job_state_tone(point.state)
    target = "" if point.target is None else f"  {_target(point.target)}"
    bar = Span("█" * filled, "accent")
    return line(f" {text}  ", Span(printable(point.result), tone), target, "  ", bar)


def _target(told: TimeToTarget) -> str:
    """`0.9 in 12 s`; the best value if the target was not reached."""
    if not told.is_reached:
        return f"{told.target_accuracy:g} {not_reached_words(told)}"
    return f"{told.target_accuracy:g} in {seconds(told.training_s)}"


def _rate(value: Estimate | None) -> str:
    if value is None:
        return UNKNOWN
    if value.noise is None or not value.value:
        return number(value.value)
    return f"{number(value.value)} ±{abs(value.noise / value.value):.1%}"
