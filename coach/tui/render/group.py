"""A sweep as lines: one for each value, with a bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coach.analysis.comparing.steady_state import Estimate
from coach.analysis.comparing.sweep_table import OUT_OF_MEMORY, WORLD_SIZE, Group, Point
from coach.analysis.comparing.time_to_target import TimeToTarget, not_reached_words
from coach.render.severity import job_state_tone
from coach.render.text import (
    BLANK,
    UNKNOWN,
    Line,
    Span,
    clip,
    line,
    mib,
    muted,
    number,
    printable,
    seconds,
    strong,
    with_noise,
    wrap,
)
from coach.tui.render.table import Cell, Column, Layout, Row, fit_columns, header_line, row_line

_RESULTS = (("eval_accuracy", "EVAL ACC"), ("eval_loss", "EVAL LOSS"), ("loss", "LOSS"))
"""The metrics of a training's result, with their titles."""
_BAR = 20
_END = Column("result", "RESULT", 12, priority=1)


def group_lines(group: Group, width: int) -> list[Line]:
    """The table: first the results of the trainings, then their speed. A column without a value is left out;
    of columns without room, the last."""
    named = [(column, cell_of) for column, cell_of in _columns(group) if _is_known(cell_of, group.points)]
    columns = [*(column for column, _ in named), _END]
    layout = fit_columns(columns, width)
    rows = [
        line(strong(f" {printable(group.recipe)}"), muted(f"  a run for each {printable(group.parameter)}")),
        BLANK,
        header_line(layout),
    ]
    for point in group.points:
        cells = (*(Cell(cell_of(point)) for _, cell_of in named), Cell(""))
        kept = Layout(tuple(each for each in layout.columns if each[1] is not _END))
        rows.append(clip((*row_line(Row("", cells), kept), Span("  "), *_end(point)), width))
    if words := (*group.reasons, *group.scaling_words):
        texts = (text for said in words for text in wrap(printable(said), width - 2))
        rows += [BLANK, *(line(f" {text}") for text in texts)]
    return [*rows, BLANK, *_meaning_lines(group, width)]


def _meaning_lines(group: Group, width: int) -> list[Line]:
    """The meaning of the columns that are shown."""
    texts: list[str] = []
    if any(point.throughput is not None for point in group.points):
        said = (
            "efficiency: samples/s per rank, against the fewest ranks"
            if group.parameter == WORLD_SIZE
            else "of best: samples/s against the best of the group"
        )
        texts += wrap(f"{said}; ± is half the 95 % interval of the n steady steps", width - 2)
    if any(point.target is not None for point in group.points):
        texts.append("after the result: the training time to the target accuracy")
    return [line(muted(f" {text}")) for text in texts]


def _columns(group: Group) -> list[tuple[Column, Callable[[Point], str]]]:
    """All columns, each with the text of a point's cell."""
    compared = "EFFICIENCY" if group.parameter == WORLD_SIZE else "OF BEST"
    value = Column("value", printable(group.parameter).upper(), 12, align="right")
    return [
        (value, lambda point: printable(str(point.value))),
        *(
            (
                Column(name, title, 10, align="right"),
                lambda point, name=name: _metric(point, name),
            )
            for name, title in _RESULTS
        ),
        (Column("rate", "SAMPLES/S", 14, 2, "right"), lambda point: _rate(point.throughput)),
        (Column("ratio", "RATIO", 13, 5, "right"), lambda point: printable(point.ratio_words or UNKNOWN)),
        (Column("efficiency", compared, 10, 3, "right"), lambda point: point.efficiency_words or UNKNOWN),
        (Column("n", "N", 4, 4, "right"), lambda point: _num_steps(point.throughput)),
        (Column("step", "STEP", 9, 6, "right"), lambda point: _time(point.step_time)),
        (Column("data", "DATA", 9, 7, "right"), lambda point: _time(point.data_time)),
        (Column("memory", "MEMORY", 8, 8, "right"), lambda point: mib(point.memory_mib)),
    ]


def _metric(point: Point, name: str) -> str:
    words = point.metric_words(name)
    return number(point.metrics.get(name)) if words is None else words.partition(" ")[0]


def _is_known(cell_of: Callable[[Point], str], points: Sequence[Point]) -> bool:
    return any(cell_of(point) != UNKNOWN for point in points)


def _end(point: Point) -> Line:
    """The end of a row: the result in words, the target accuracy, a bar of the efficiency."""
    filled = round(_BAR * min(1.0, point.efficiency)) if point.efficiency is not None else 0
    tone = "info" if point.result == OUT_OF_MEMORY else job_state_tone(point.state)
    target = "" if point.target is None else f"  {_target(point.target)}"
    bar = Span("█" * filled, "accent")
    return line(Span(printable(point.result_words), tone), target, "  ", bar)


def _target(told: TimeToTarget) -> str:
    """`0.9 in 12 s`; the best value if the target was not reached."""
    if not told.is_reached:
        return f"{told.target_accuracy:g} {not_reached_words(told)}"
    return f"{told.target_accuracy:g} in {seconds(told.training_s)}"


def _time(value: Estimate | None) -> str:
    return seconds(value.value if value is not None else None)


def _num_steps(value: Estimate | None) -> str:
    return UNKNOWN if value is None else str(value.num_values)


def _rate(value: Estimate | None) -> str:
    if value is None:
        return UNKNOWN
    if value.noise is None or not value.value:
        return number(value.value)
    return with_noise(number(value.value), value.value, value.noise, number(value.noise))
