"""A verdict in at most six lines: the cause of the end, its place, the fix, and the work lost. Pure.

The words come from the verdict's JSON, not from the diagnosis, so that a stored verdict reads like a new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from coach.analysis.judging.no_finding import verdict_words
from coach.analysis.judging.outcome_words import end_text, lost_text, resume_command
from coach.analysis.judging.verdict_object import (
    diagnosis_of,
    has_gone_wrong,
    is_bad_state,
    pending_of,
)
from coach.analysis.judging.waiting import waiting_lines
from coach.analysis.spelling.printable import cut, printable
from coach.analysis.teaching.withheld_findings import ANSWER_FIRST, why_withheld
from coach.model.judging.finding import EARLY_END, PROGRESS, Diagnosis, Finding, Severity
from coach.model.judging.outcome import End
from coach.render.finding import Detail, finding_lines
from coach.render.text import plain
from coach.runs import RUN_ID, SAID_OF_END

MAX_LINES = 6
_MAX_WIDTH = 300
"""A program's message may fill a page; commands are never cut."""
_JOB_ID = re.compile(r"\d{1,18}(?:[_+]\d{1,9})?")
_DENIED = "ermission denied"
_DRILL = "ended badly; `coach drill` asks you why"


def why_lines(verdict: Mapping[str, Any], now_s: float = 0.0) -> list[str]:
    """At most six lines, each safe for a terminal. `now_s` is needed for a job that waits."""
    diagnosis = diagnosis_of(verdict)
    head = f"{diagnosis.target}  {diagnosis.state or 'state not known'}"
    if withheld := why_withheld(diagnosis):
        words = _DRILL if is_bad_state(diagnosis.state) else ANSWER_FIRST
        return [_cut(f"{head}: {words}"), *([_cut(f"  {withheld.how}")] if withheld.how else [])]
    outcome, waiting = diagnosis.outcome, pending_of(verdict)
    ended = end_text(outcome) if outcome is not None else ""
    lines = [_cut(f"{head}: {ended}" if ended else head)]
    if diagnosis.findings:
        lines += _cause(diagnosis.findings[0], diagnosis.target)
    elif waiting is not None:
        lines += [_cut(f"  {line}") for line in waiting_lines(waiting, now_s)]
    else:
        lines.append(_cut(f"  {_words_without_a_finding(diagnosis)}"))
    if outcome is not None and outcome.end is not End.COMPLETED:
        lost = lost_text(outcome, resume_command(diagnosis.target))
        lines += [_cut(f"  {lost}")] if lost else []
    is_array = isinstance(jobs := verdict.get("jobs"), list) and len(jobs) > 1
    return [*lines, *_other_causes(diagnosis.findings[1:], is_array)][:MAX_LINES]


def log_lines(verdict: Mapping[str, Any]) -> list[str]:
    """The lines that a job writes about its own end into its log; none for a healthy job."""
    diagnosis = diagnosis_of(verdict)
    if not has_gone_wrong(diagnosis):
        return []
    lines = [_DRILL] if why_withheld(diagnosis) else why_lines(verdict)
    return [f"{SAID_OF_END}{line}" for line in lines]


def _cause(finding: Finding, target: str) -> list[str]:
    """The finding, with the command that applies its first fix."""
    is_known = RUN_ID.match(target) or _JOB_ID.fullmatch(target)
    fixes = tuple(
        replace(
            fix,
            title=cut(fix.title, _MAX_WIDTH),
            command=fix.command or (f"coach fix {target}" if fix.changes and is_known else None),
            changes={},
        )
        for fix in finding.fixes
    )
    known = replace(finding, summary=cut(finding.summary, _MAX_WIDTH), fixes=fixes)
    head, *rest = finding_lines(known, Detail.WHY)
    return [f"  {plain(head)}", *map(plain, rest)]


def _other_causes(findings: tuple[Finding, ...], is_array: bool) -> Iterator[str]:
    """One line with the other causes: of a whole array, whose tasks may end for several reasons, those above
    info; of a job the critical ones that its first cause does not explain."""
    others = [
        f"{finding.rule}: {finding.summary}"
        for finding in findings
        if (finding.severity is Severity.CRITICAL and not finding.consequence_of)
        or (is_array and finding.severity > Severity.INFO)
    ]
    if others:
        yield _cut(f"  also {'; '.join(others)}")


def _words_without_a_finding(diagnosis: Diagnosis) -> str:
    missing = diagnosis.not_measured
    logs = (item.because for item in missing if item.what == "log")
    if unread := next((because for because in logs if _DENIED in because), None):
        return f"nothing is known: its log was not read: {unread}"
    how = next((f"; {item.how}" for item in missing if item.what in (PROGRESS, EARLY_END)), "")
    return verdict_words(diagnosis.verdict, diagnosis.ground, missing) + how


def _cut(text: str) -> str:
    return cut(printable(text), _MAX_WIDTH)
