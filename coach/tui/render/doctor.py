"""The doctor's report as lines: areas, signs, findings, reasons, and remedies."""

from __future__ import annotations

from coach.model.judging.doctor_report import Check, CheckState, Report
from coach.render.text import BLANK, UNKNOWN, Line, Span, Tone, line, muted, printable, strong, wrap

_SIGNS: dict[CheckState, tuple[str, Tone]] = {
    CheckState.OK: ("✓", "good"),
    CheckState.WARNING: ("▲", "warning"),
    CheckState.WRONG: ("✖", "critical"),
    CheckState.UNKNOWN: ("?", "warning"),
}
_VERDICTS: dict[int, Tone] = {0: "good", 1: "critical", 2: "warning"}
_MAX_NAME = 24


def report_lines(report: Report, width: int) -> list[Line]:
    """The whole report. The verdict comes first, because the user asked for it."""
    name_width = min(_MAX_NAME, max((len(check.what) for check in report.checks), default=0))
    verdict = wrap(printable(report.verdict), max(20, width - 1))
    rows: list[Line] = [line(Span(f" {text}", _VERDICTS[report.exit_status])) for text in verdict]
    area = None
    for check in report.checks:
        if check.area != area:
            area = check.area
            rows += [BLANK, line(strong(f" {area}"))]
        rows += _check_lines(check, name_width, width)
    return rows


def _check_lines(check: Check, name_width: int, width: int) -> list[Line]:
    sign, tone = _SIGNS[check.state]
    indent = name_width + 6
    name = printable(check.what)
    head: list[Line] = [line(Span(f"   {sign} ", tone), f"{name:<{name_width}} ")]
    room = max(20, width - indent - 1)
    values = wrap(printable(check.value) if check.value is not None else UNKNOWN, room) or [UNKNOWN]
    if len(name) > name_width:
        values = ["", *values]
    rows = [(*head[0], Span(values[0]))]
    rows += [line(" " * indent, value) for value in values[1:]]
    rows += [line(" " * indent, muted(text)) for text in wrap(printable(check.because or ""), room)]
    for number, text in enumerate(wrap(printable(check.todo or ""), room - 2)):
        rows.append(line(" " * indent, muted("→ " if number == 0 else "  "), Span(text, "accent")))
    return rows
