"""The findings of a job on its screens, with the keys that act on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from coach.analysis.judging.no_finding import Look, look_of, meaning_of, sign_of
from coach.analysis.judging.outcome_words import outcome_text
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.judging.finding import Diagnosis, Finding
from coach.render.finding import Detail, finding_lines, shortened
from coach.render.severity import severity_sign
from coach.render.text import (
    BLANK,
    KeyLabel,
    Line,
    Span,
    Tone,
    clip,
    hang,
    line,
    muted,
    plural,
    printable,
    strong,
    wrap,
)

_MARGIN: Line = (Span(" "),)
_MAX_EVIDENCE = 2
_MAX_WRAPPED = 3


def fix_word(findings: Iterable[Finding]) -> str | None:
    """The footer's word for `F`: `fix` if a fix changes the launch, `advice` if the user must act; None if
    there is neither."""
    fixes = [fix for finding in findings for fix in finding.fixes]
    return None if not fixes else "fix" if any(fix.changes for fix in fixes) else "advice"


def is_only_advice(findings: Iterable[Finding]) -> bool:
    """True if the user must act, and neither a change of the launch nor a command does it."""
    fixes = [fix for finding in findings for fix in finding.fixes]
    return bool(fixes) and not any(fix.changes or fix.command for fix in fixes)


def findings_lines(diagnosis: Diagnosis | None, width: int, can_fix: bool, label: KeyLabel) -> list[Line]:
    """The top of a job's screen: the primary finding with its proof and its fix, and one line for each other
    finding; or a line that there is none."""
    if diagnosis is None:
        return [look_line(None)]
    if withheld := why_withheld(diagnosis):
        names = (Span(f"   {label('answer')}", "key"), Span(" names the cause")) if can_fix else ()
        return [(Span(f" {withheld.because}", "accent"), *names)]
    if not diagnosis.findings:
        blind = len(diagnosis.not_measured)
        note = f" · {plural(blind, 'thing')} not measured ({label('findings')} lists)" if blind else ""
        return [(*look_line(diagnosis, is_short=bool(note)), muted(note))]
    primary = diagnosis.findings[0]
    rows = _primary(primary, width, fix_word(diagnosis.findings), label("fix") if can_fix else None)
    rows.extend(clip(_other(finding, diagnosis.findings), width) for finding in diagnosis.findings[1:])
    return rows


def outcome_lines(diagnosis: Diagnosis | None, width: int, resume_key: str | None = None) -> list[Line]:
    """How the job ended, where, what was lost, and if it can resume; empty while it runs. `resume_key`: the
    label of the key that resumes it, if coach may."""
    if diagnosis is None or why_withheld(diagnosis):
        return []
    text = outcome_text(diagnosis.outcome, f"press {resume_key}" if resume_key else "")
    return [line(strong(f" {row}")) for row in wrap(text, width - 2)]


def told_finding(diagnosis: Diagnosis | None) -> Finding | None:
    """The primary finding; None if there is none, or while a drill withholds it."""
    if diagnosis is None or not diagnosis.findings or why_withheld(diagnosis):
        return None
    return diagnosis.findings[0]


def cause_place(diagnosis: Diagnosis | None) -> tuple[str, int] | None:
    """File and line of the log that prove the primary finding; None if no line proves it."""
    if diagnosis is None or not diagnosis.findings or why_withheld(diagnosis):
        return None
    return proof_place(diagnosis.findings[0])


def proof_place(finding: Finding) -> tuple[str, int] | None:
    """File and line of the log that prove a finding; None if no line proves it."""
    places = [(item.file, item.line) for item in finding.evidence]
    return next(((file, number) for file, number in places if file is not None and number is not None), None)


def look_line(diagnosis: Diagnosis | None, *, is_short: bool = False) -> Line:
    """The meaning of "no finding": not judged yet, not enough data, or healthy. `is_short`: only the word."""
    look = look_of(diagnosis)
    tone: Tone = (
        "good" if look is Look.HEALTHY else "warning" if look in (Look.UNKNOWN, Look.SILENT) else "muted"
    )
    said = look.value if is_short else printable(meaning_of(diagnosis))
    return line(Span(f" {sign_of(look)} {said}", tone))


def _primary(finding: Finding, width: int, word: str | None, fix_key: str | None) -> list[Line]:
    head, *rest = finding_lines(shortened(finding, _MAX_EVIDENCE, 1), Detail.WHOLE)
    if finding.fixes:
        has = "advice" if word == "advice" else "a fix"
        keys = (Span(f"   {fix_key}", "key"), Span(f" {word}")) if fix_key else (muted(f"   has {has}"),)
        head = (*head, *keys)
    return [
        _signed(finding, head),
        *(_MARGIN + part for row in rest for part in hang(row, width - 2)[:_MAX_WRAPPED]),
    ]


def _other(finding: Finding, findings: Sequence[Finding]) -> Line:
    is_known = any(other.rule == finding.consequence_of for other in findings)
    link = f"  └ follows from {printable(finding.consequence_of or '')}: " if is_known else "  "
    (row,) = finding_lines(finding, Detail.SHORT)
    return (muted(link), severity_sign(finding.severity), Span(" "), *row)


def _signed(finding: Finding, head: Line) -> Line:
    return (*_MARGIN, severity_sign(finding.severity), Span(" "), *head)


def finding_detail(diagnosis: Diagnosis, width: int, label: KeyLabel, marked: int = 0) -> list[Line]:
    """Every finding in full, then what could not be judged. If there are several findings, a sign marks
    one."""
    if withheld := why_withheld(diagnosis):
        return [
            line(
                Span(f" {withheld.because}", "accent"),
                muted(f"   {label('answer')} on the run's screen names the cause"),
            )
        ]
    rows: list[Line] = []
    for index, finding in enumerate(diagnosis.findings):
        head, *rest = whole_lines(finding, width)
        is_marked = index == marked and len(diagnosis.findings) > 1
        rows.extend((line(Span("▸", "accent"), *head[1:]) if is_marked else head, *rest, BLANK))
    if not diagnosis.findings:
        rows.extend((look_line(diagnosis), BLANK))
    if diagnosis.not_measured:
        rows.append(line(strong(" Not measured")))
        for gap in diagnosis.not_measured:
            rows.append(line(muted("   – "), printable(gap.what), muted(": "), printable(gap.because)))
            rows.extend(line(muted(f"       {text}")) for text in wrap(printable(gap.how), width - 8))
    return rows


def finding_starts(diagnosis: Diagnosis, width: int) -> list[int]:
    """The line of `finding_detail` where each finding begins."""
    if why_withheld(diagnosis):
        return []
    lengths = [len(whole_lines(finding, width)) + 1 for finding in diagnosis.findings]
    return [0, *accumulate(lengths[:-1])] if lengths else []


def whole_lines(finding: Finding, width: int) -> list[Line]:
    """One finding in full, wrapped."""
    head, *rest = finding_lines(finding, Detail.WHOLE)
    return [_signed(finding, head), *(_MARGIN + part for row in rest for part in hang(row, width - 2))]
