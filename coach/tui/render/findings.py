"""The findings of all jobs as rows, and the most severe one for the top line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from coach.analysis.judging.no_finding import Look
from coach.analysis.judging.ranking import RankedFinding, has_gone_wrong
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.judging.finding import Diagnosis, Severity
from coach.render.severity import job_state_tone, severity_sign, severity_tone
from coach.render.text import UNKNOWN, KeyLabel, Line, Span, age, muted, number, printable, short_id
from coach.tui.render.table import Cell, Column, Row, searchable

VERDICT_COLUMNS = ("severity", "rule", "job", "summary", "lost")
"""The columns for jobs' most severe findings on screens with another subject."""
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
"""On the first screen the column of the cause is wide, because people read it there. At 80 columns it
replaces the GPU-hours, which the Findings screen shows."""
_LEAST_WITH_NAMES = 104
"""Least width of a list with names and states."""
LEAST_GPU_HOURS = 0.01
"""Less than this (36 s of one GPU) is shown as `< 0.01`."""


def finding_columns(found: Iterable[RankedFinding], width: int) -> tuple[str, ...]:
    """The names of the columns; empty for the usual ones. Without lost GPU-hours their column leaves its room
    to the findings."""
    if any((each.lost_gpu_hours or 0.0) > 0 for each in found):
        return ()
    narrow = ("severity", "rule", "job", "summary")
    return narrow if width < _LEAST_WITH_NAMES else (*narrow[:3], "name", "state", "summary", "since")


def finding_key(ranked: RankedFinding) -> str:
    """The key of a finding's row, which keeps the cursor in place."""
    subject = ranked.finding.subject
    return f"{ranked.target} {ranked.finding.rule} {subject.node} {subject.rank} {subject.gpu}"


def finding_rows(found: Iterable[RankedFinding], now_s: float) -> list[Row]:
    """One row per finding, in the given order."""
    rows = {finding_key(each): _row(each, now_s) for each in found}
    return list(rows.values())


def cause_rows(groups: Iterable[Sequence[RankedFinding]], now_s: float) -> list[Row]:
    """One row per cause. It shows the newest of the jobs with that cause, and their number."""
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
    """GPU-hours in a readable form: `0`, `< 0.01`, `12.5`."""
    return f"< {LEAST_GPU_HOURS:g}" if 0 < value < LEAST_GPU_HOURS else number(value, 3)


def verdict_title(
    causes: Iterable[Sequence[RankedFinding]],
    num_judged: int,
    num_unread: int,
    label: KeyLabel,
    *,
    is_focused: bool = True,
) -> str:
    """The title above the causes, with the keys that lead from the cursor's pane to a cause."""
    wrong = [each for group in causes for each in group]
    num_wrong = sum(has_gone_wrong(each.finding, each.state) for each in wrong)
    num_warned = len(wrong) - num_wrong
    warned = f", {num_warned} warned" if num_warned else ""
    told = f"{num_wrong} of {num_judged} checked jobs went wrong{warned}"
    if not num_wrong:
        told = f"{num_warned} of {num_judged} checked jobs warned"
    unread = f" · {num_unread} {Look.NOT_LOOKED_AT.value}" if num_unread else ""
    way = f"{label('open')} opens" if is_focused else f"{label('pane')} goes here"
    return f"{told}{unread} · {way}, {label('all_findings')} lists all"


def newest_critical(groups: Iterable[Sequence[RankedFinding]]) -> str | None:
    """The key of the cause whose newest job ended last, or whose finding began last, among critical causes;
    None if there is no critical cause."""

    def time_s(each: RankedFinding) -> float:
        told_s = each.finding.since_s if each.ended_s is None else each.ended_s
        return told_s if told_s is not None else 0.0

    newest = [group[0] for group in groups if group[0].finding.severity is Severity.CRITICAL]
    return finding_key(max(newest, key=time_s)) if newest else None


def worst_line(worst: RankedFinding | None, *, is_elsewhere: bool = False) -> Line:
    """`✖ MEM001 ddp-4f2a`, or `other job ✖ MEM001 ddp-4f2a`; empty if nothing is wrong."""
    if worst is None:
        return ()
    severity = worst.finding.severity
    text = f"{severity_sign(severity).text} {worst.finding.rule} {short_id(worst.target)}"
    finding = Span(text, severity_tone(severity))
    return (muted("other job "), finding) if is_elsewhere else (finding,)


def withheld_line(diagnoses: Iterable[Diagnosis | None]) -> Line:
    """A line that a drill among these is not answered; empty if there is none."""
    held = [why_withheld(each) for each in diagnoses if each is not None]
    return next(((Span(each.because, "accent"),) for each in held if each is not None), ())
