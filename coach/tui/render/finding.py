"""Findings as lines: the observation, its proof, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from coach.analysis.judging.no_finding import Look, look_of, meaning_of, sign_of
from coach.analysis.judging.outcome_words import outcome_text
from coach.analysis.spelling.numbers import short_number
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.judging.finding import SITE_ADVICE, Diagnosis, Evidence, Finding, Fix
from coach.render.severity import severity_sign, severity_span, severity_tone
from coach.render.text import (
    BLANK,
    UNKNOWN,
    KeyLabel,
    Line,
    Span,
    Tone,
    clip,
    line,
    line_width,
    muted,
    number,
    plural,
    printable,
    strong,
    wrap,
)

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


def outcome_lines(diagnosis: Diagnosis | None, width: int) -> list[Line]:
    """How the job ended, where, what was lost, and if it can resume; empty while it runs."""
    if diagnosis is None or why_withheld(diagnosis):
        return []
    return [line(strong(f" {text}")) for text in wrap(outcome_text(diagnosis.outcome), width - 2)]


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
    tone = severity_tone(finding.severity)
    head = [Span(" "), severity_span(finding.severity), Span(f"  {finding.rule} ", "strong")]
    where = subject_text(finding)
    head.append(strong(printable(finding.name.replace("-", " "))))
    if where:
        head.append(muted(f"  {where}"))
    if finding.fixes:
        has = "advice" if word == "advice" else "a fix"
        head.extend(
            (Span(f"   {fix_key}", "key"), Span(f" {word}")) if fix_key else (muted(f"   has {has}"),)
        )
    rows: list[Line] = [tuple(head)]
    rows.extend(line("   ", Span(text, tone)) for text in wrap(printable(finding.summary), width - 4))
    for item in finding.evidence[:_MAX_EVIDENCE]:
        rows.extend(_wrapped(_evidence(item), width))
    for fix in finding.fixes[:1]:
        rows.extend(_wrapped(fix_line(fix), width, ": "))
    return rows


def _wrapped(row: Line, width: int, gap: str = "  ") -> list[Line]:
    """Wrap a line that has a sign in its fourth cell, with at most two more lines below it. `gap` joins the
    parts that two spaces part on one line."""
    if line_width(row) <= width:
        return [row]
    sign, *rest = row
    said = "".join(f"{gap}{span.text.strip()}" if span.text.startswith("  ") else span.text for span in rest)
    texts = wrap(said, width - line_width((sign,)) - 1)
    blank = Span(" " * line_width((sign,)))
    return [(blank if index else sign, Span(text)) for index, text in enumerate(texts[:_MAX_WRAPPED])]


def _other(finding: Finding, findings: Sequence[Finding]) -> Line:
    known = any(other.rule == finding.consequence_of for other in findings)
    link = (
        f"  └ follows from {printable(finding.consequence_of)}: "
        if finding.consequence_of and known
        else "  "
    )
    return line(
        muted(link),
        severity_sign(finding.severity),
        Span(f" {finding.severity.word} ", severity_tone(finding.severity)),
        strong(f"{finding.rule} "),
        printable(finding.summary),
    )


def subject_text(finding: Finding) -> str:
    """The place of a finding: `node1 · rank 3 · gpu 0`."""
    subject = finding.subject
    parts = [printable(subject.node)] if subject.node is not None else []
    if subject.rank is not None:
        parts.append(f"rank {subject.rank}")
    if subject.gpu is not None:
        parts.append(f"gpu {subject.gpu}")
    return " · ".join(parts)


def _evidence(item: Evidence) -> Line:
    place = ""
    if item.file is not None:
        place = f"  {printable(item.file.rsplit('/', 1)[-1])}"
        if item.line is not None:
            place += f":{item.line}"
    return line(muted("   · "), evidence_text(item), muted(place))


def evidence_text(item: Evidence) -> str:
    """The text of the evidence with its number. A quoted line that has the number already stays as it is."""
    text = printable(item.text)
    if item.value is None:
        return text
    unit = printable(item.unit or "")
    is_ordinal = unit in ("step", "epoch")
    value = short_number(item.value) if is_ordinal else number(item.value)
    if item.file is not None and value in text:
        return text
    return f"{text}: {unit} {value}" if is_ordinal else f"{text}: {value} {unit}".rstrip()


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
    """One finding in full, with its proof and its fixes."""
    where = subject_text(finding)
    rows: list[Line] = [
        line(
            Span(" "),
            severity_span(finding.severity),
            strong(f"  {finding.rule} {printable(finding.name)}"),
            muted(f"  {where}" if where else ""),
            muted(f"  {finding.doubt}" if finding.doubt else ""),
        )
    ]
    rows.extend(line(f"   {text}") for text in wrap(printable(finding.summary), width - 4))
    if finding.consequence_of:
        rows.append(line(muted(f"   follows from {printable(finding.consequence_of)}")))
    rows.extend(_evidence(item) for item in finding.evidence)
    for fix in finding.fixes:
        is_site = fix.title.startswith(SITE_ADVICE)
        rows.extend(_wrapped(fix_line(fix), width) if is_site else [fix_line(fix)])
    return rows


def fix_line(fix: Fix) -> Line:
    text = changes_text(fix.changes) if fix.changes else printable(fix.command or "")
    learn = Span(" · this changes the training result", "warning") if fix.changes_learning else Span("")
    return line(Span("   → ", "good"), printable(fix.title), muted(f"  {text}" if text else ""), learn)


def changes_text(changes: Mapping[str, Any]) -> str:
    """`lr 0.05, warmup_steps 100`."""
    return ", ".join(f"{printable(str(key))} {value_text(value)}" for key, value in changes.items())


def value_text(value: Any) -> str:
    """A parameter's value in a readable form."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if value == value and abs(value) != float("inf") else number(value)
    return printable(str(value))
