"""Two runs compared: each quantity before and after with its noise, and if the difference exceeds the
noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len

from coach.analysis.comparing.two_runs import (
    AFTER,
    BEFORE,
    BETTER,
    BOTH,
    NO_DIFFERENCE,
    NOT_COMPARABLE,
    WORSE,
    Comparison,
    FoundIn,
    Row,
)
from coach.model.training.run import Run
from coach.render.finding import changes_text, value_text
from coach.render.severity import state_span
from coach.render.text import (
    BLANK,
    UNKNOWN,
    Line,
    Span,
    Tone,
    clip,
    fit,
    line,
    mib,
    muted,
    number,
    printable,
    seconds,
    short_id,
    strong,
    with_noise,
    wrap,
)

_UNITS: dict[str, Callable[[float | None], str]] = {"s": seconds, "MiB": mib}
_WIDE = 100
_TITLES = ("", "BEFORE", "AFTER", "RATIO")
_WIDE_COLUMNS = (20, 19, 19, 9)
_LEAST_NAME = 9
_ROUND_FROM = 0.1
"""From this share of the value on, a narrow terminal shows the noise without a decimal."""
_SHORT_VERDICTS = {NO_DIFFERENCE: "no difference", NOT_COMPARABLE: NOT_COMPARABLE}
"""The verdicts of a narrow terminal; the longest sets the room of the column."""
_TONES: dict[str, Tone] = {BOTH: "warning", AFTER: "warning", BEFORE: "muted"}
_SIGN: dict[str, tuple[str, Tone]] = {BETTER: ("✓", "good"), WORSE: ("▲", "warning")}


def compare_lines(
    comparison: Comparison | None,
    before: tuple[str, Run | None, str | None],
    after: tuple[str, Run | None, str | None],
    width: int,
    unread: Sequence[str] = (),
) -> list[Line]:
    """The lines of a comparison: the differences of both set-ups, then one line per quantity. `before` and
    `after` are (id, run, state); `unread` are the ids of runs that were not read to their end, so nothing is
    compared yet."""
    rows = [clip(_run_line("before", *before), width), clip(_run_line("after", *after), width)]
    fix = after[1].fix if after[1] is not None else None
    if fix is not None and after[1] is not None and after[1].parent_run_id == before[0]:
        text = changes_text(fix.changes)
        rows.append(
            clip(
                line(
                    muted(" fix     "),
                    strong(printable(fix.title)),
                    muted(f"  {printable(fix.rule)}: {text}"),
                ),
                width,
            )
        )
    rows.append(BLANK)
    if comparison is None:
        return [*rows, line(muted(f" reading {' and '.join(map(short_id, unread))}…"))]
    changes = comparison.changes or ("nothing",)
    rows.append(line(strong(" What differs in the launch")))
    rows.extend(clip(line(f"   {printable(text)}"), width) for text in changes)
    rows.append(BLANK)
    columns = _widths(comparison.rows, width)
    rows.append(line(muted(_joined(_TITLES, columns)), muted("  VERDICT")))
    rows.extend(_quantity_lines(comparison, columns, width))
    rows.extend([clip(each, width) for each in _finding_lines(comparison.findings)] or [BLANK])
    rows.append(line(muted(" ± is half the 95 % interval of the steady part of a run")))
    return rows


def _widths(rows: Sequence[Row], width: int) -> tuple[int, ...]:
    """The widths of the four columns before the verdict, which always has the room for its words. A narrow
    terminal gives each column the width of its longest text. A ratio that no row has, or that has no room,
    gets none; then names that have no room are shortened."""
    if width >= _WIDE:
        return _WIDE_COLUMNS
    shown = [row for row in rows if not row.is_unmeasured]
    cells = [_cells(row, width) for row in shown]
    before, after, ratio = (max(map(cell_len, texts)) for texts in zip(_TITLES[1:], *cells, strict=True))
    room = width - cell_len(f"  ✓ {_SHORT_VERDICTS[NOT_COMPARABLE]}") - 1
    full = max((cell_len(_name(row)) for row in shown), default=0)
    short = max((cell_len(_short_name(row)) for row in shown), default=0)
    if all(row.ratio is None for row in rows) or short + before + after + ratio + 6 > room:
        ratio = 0
    left = room - sum(2 + each for each in (before, after, ratio) if each)
    return full if full <= left else max(_LEAST_NAME, min(short, left)), before, after, ratio


def _joined(cells: Sequence[str], columns: Sequence[int]) -> str:
    """The cells before the verdict; a column of no width is left out."""
    shown = [(cell, wide) for cell, wide in zip(cells, columns, strict=True) if wide]
    return " " + "  ".join(
        fit(cell, wide, "right" if index else "left") for index, (cell, wide) in enumerate(shown)
    )


def _quantity_lines(comparison: Comparison, columns: tuple[int, ...], width: int) -> list[Line]:
    """The measured quantities, then the names of the others."""
    rows: list[Line] = []
    for row in comparison.rows:
        if not row.is_unmeasured:
            rows.extend(_row_lines(row, columns, width))
    absent = [row.quantity for row in comparison.rows if row.is_unmeasured]
    if absent:
        told = f"not measured in either run: {', '.join(absent)}"
        rows.extend(line(muted(f" {text}")) for text in wrap(told, width - 2))
    return rows


def _finding_lines(findings: Sequence[FoundIn] | None) -> list[Line]:
    """A line for each finding of the two runs; none if they were not judged."""
    if findings == ():
        return [line(muted(" found in neither run: a warning or worse"))]
    return [
        line(
            Span(f" found {each.where_words}: ", _TONES[each.where]),
            f"{printable(each.rule)} {printable(each.name)}",
        )
        for each in findings or ()
    ]


def differing(runs: Sequence[Run]) -> dict[str, str]:
    """By run id, the recipe and parameters in which the runs differ."""
    tables = {run.run_id: {"recipe": run.recipe, **run.parameters} for run in runs}
    names = dict.fromkeys(name for table in tables.values() for name in table)
    kept = [name for name in names if len({repr(table.get(name)) for table in tables.values()}) > 1]
    return {
        run_id: "  ".join(f"{name} {value_text(table[name])}" for name in kept if name in table)
        for run_id, table in tables.items()
    }


def _run_line(word: str, run_id: str, run: Run | None, state: str | None) -> Line:
    recipe = f"  {printable(run.recipe)}" if run is not None else ""
    return line(
        muted(f" {word:<8}"), Span(printable(run_id), "accent"), "  ", state_span(state), muted(recipe)
    )


def _row_lines(row: Row, columns: tuple[int, ...], width: int) -> list[Line]:
    sign, tone = _SIGN.get(row.verdict, ("·", "muted"))
    verdict = row.verdict if width >= _WIDE else _SHORT_VERDICTS.get(row.verdict, row.verdict)
    name = _name(row) if cell_len(_name(row)) <= columns[0] else _short_name(row)
    rows = [line(_joined((name, *_cells(row, width)), columns), Span(f"  {sign} {verdict}", tone))]
    if row.because:
        indent = " " * (columns[0] + 3)
        rows += [line(muted(indent + text)) for text in wrap(printable(row.because), width - len(indent))]
    return rows


def _name(row: Row) -> str:
    return row.quantity if row.unit in _UNITS else f"{row.quantity} {row.unit}".rstrip()


def _short_name(row: Row) -> str:
    """A rate is named by its unit alone."""
    return row.quantity if row.unit in _UNITS or not row.unit else row.unit


def _cells(row: Row, width: int) -> tuple[str, str, str]:
    """Both values and their ratio."""
    is_wide = width >= _WIDE
    return (
        _value(row.before, row.before_noise, row.unit, is_wide=is_wide),
        _value(row.after, row.after_noise, row.unit, is_wide=is_wide),
        UNKNOWN if row.ratio is None else f"× {row.ratio:.3g}",
    )


def _value(value: float | None, noise: float | None, unit: str, *, is_wide: bool) -> str:
    if value is None:
        return UNKNOWN
    spelled = _UNITS.get(unit, number)(value)
    if noise is None or not value:
        return spelled
    is_short = not is_wide and abs(noise / value) >= _ROUND_FROM
    return with_noise(spelled, value, noise, _UNITS.get(unit, number)(noise), is_short=is_short)
