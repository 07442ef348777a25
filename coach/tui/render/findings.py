"""The findings of all jobs as rows, and the worst of them for the top line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from coach.analysis.judging.no_finding import Look
from coach.analysis.judging.ranking import RankedFinding
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.judging.finding import Diagnosis
from coach.tui.render.severity import job_state_tone, severity_sign, severity_tone
from coach.tui.render.table import Cell, Column, Row, searchable
from coach.tui.render.text import UNKNOWN, KeyLabel, Line, Span, age, muted, number, printable, short_id

VERDICT_COLUMNS = ("severity", "rule", "job", "summary", "lost")
"""Of a job's worst finding, where the screen is about something else."""
FINDING_COLUMNS = (
    Column("severity", "SEVERITY", 10),
    Column("rule", "RULE", 10),
    Column("job", "JOB", 12, grow=1),
    Column("name", "NAME", 10, priority=2, grow=1),
    Column("state", "STATE", 9, priority=3),
    Column("summary", "WHAT", 26, grow=6),
    Column("lost", "LOST GPU-H", 10, align="right"),
    Column("since", "SINCE", 7, align="right", priority=1),
)
_CAUSE_WIDTHS = {"job": 14, "summary": 38}
CAUSE_COLUMNS = tuple(
    replace(each, width=_CAUSE_WIDTHS.get(each.name, each.width)) for each in FINDING_COLUMNS
)
"""On the first screen the cause itself is read, so that its column is wide: at 80 columns it takes the place
of the GPU-hours, and the screen of all findings shows those."""
LEAST_GPU_HOURS = 0.01
"""Less than this is 36 s of one GPU: its digits tell nobody anything."""


def finding_key(ranked: RankedFinding) -> str:
    """What the cursor holds on to."""
    subject = ranked.finding.subject
    return f"{ranked.target} {ranked.finding.rule} {subject.node} {subject.rank} {subject.gpu}"


def finding_rows(found: Iterable[RankedFinding], now_s: float) -> list[Row]:
    """One row per finding, in the order that was given."""
    rows = {finding_key(each): _row(each, now_s) for each in found}
    return list(rows.values())


def cause_rows(groups: Iterable[Sequence[RankedFinding]], now_s: float) -> list[Row]:
    """One row per cause: of many jobs with the same one the newest, with their number."""
    return [_row(group[0], now_s, group) for group in groups]


def _row(ranked: RankedFinding, now_s: float, alike: Sequence[RankedFinding] = ()) -> Row:
    finding = ranked.finding
    tone = severity_tone(finding.severity)
    severity = f"{severity_sign(finding.severity).text} {finding.severity.word}"
    job, name = short_id(ranked.target), printable(ranked.job_name or UNKNOWN)
    state = printable(ranked.state or UNKNOWN)
    link = f"└ follows from {printable(finding.consequence_of)}: " if finding.consequence_of else ""
    summary = f"{link}{printable(finding.summary)}"
    costs = [each.lost_gpu_hours for each in alike or (ranked,) if each.lost_gpu_hours is not None]
    lost = gpu_hours(sum(costs)) if costs else UNKNOWN
    rule = finding.rule if len(alike) < 2 else f"{finding.rule} ×{len(alike)}"
    job += f" +{len(alike) - 1}" if len(alike) > 1 else ""
    since = UNKNOWN if finding.since_s is None else age(max(0.0, now_s - finding.since_s))
    return Row(
        finding_key(ranked),
        (
            Cell(severity, tone),
            Cell(rule),
            Cell(job),
            Cell(name),
            Cell(state, job_state_tone(ranked.state)),
            Cell(summary, tone),
            Cell(lost),
            Cell(since, "muted"),
        ),
        searchable(printable(ranked.target), name, state, severity, finding.rule, finding.name, summary),
    )


def gpu_hours(value: float) -> str:
    """GPU-hours as a person reads them: `0`, `< 0.01`, `12.5`."""
    return f"< {LEAST_GPU_HOURS:g}" if 0 < value < LEAST_GPU_HOURS else number(value, 3)


def verdict_title(
    num_wrong: int, num_judged: int, num_unread: int, label: KeyLabel, *, is_focused: bool = True
) -> str:
    """Over the jobs that went wrong. The keys are those that lead to a cause from where the cursor is."""
    unread = f" · {num_unread} {Look.NOT_LOOKED_AT.value}" if num_unread else ""
    first = "" if is_focused else f"{label('pane')} goes here, "
    ways = f"{first}{label('open')} opens, {label('all_findings')} lists all"
    return f"{num_wrong} of {num_judged} checked jobs went wrong · {ways}{unread}"


def worst_line(worst: RankedFinding | None, *, is_elsewhere: bool = False) -> Line:
    """`✖ MEM001 ddp-4f2a`, or `elsewhere ✖ MEM001 ddp-4f2a`; nothing where nothing is wrong."""
    if worst is None:
        return ()
    severity = worst.finding.severity
    text = f"{severity_sign(severity).text} {worst.finding.rule} {short_id(worst.target)}"
    finding = Span(text, severity_tone(severity))
    return (muted("elsewhere "), finding) if is_elsewhere else (finding,)


def withheld_line(diagnoses: Iterable[Diagnosis | None]) -> Line:
    """That a drill among those is still to be answered; nothing where none is."""
    held = [why_withheld(each) for each in diagnoses if each is not None]
    return next(((Span(each.because, "accent"),) for each in held if each is not None), ())
