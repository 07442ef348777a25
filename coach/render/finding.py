"""A finding in words: the observation, its proof, what to do.

Every front end says a finding by these lines: screens paint them, commands print them, Markdown and tickets
indent them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from coach.analysis.spelling.numbers import short_number
from coach.model.judging.finding import SITE_ADVICE, Evidence, Finding, Fix, Subject
from coach.render.severity import severity_tone
from coach.render.text import UNKNOWN, Line, Span, line, muted, number, printable, strong

_FRAME = re.compile(r'File "([^"]+)", line (\d{1,9})')


class Detail(Enum):
    """How much of a finding is said."""

    SHORT = auto()
    """One line: what was found, and where."""
    WHY = auto()
    """At most five lines: the place in the program and in the log, the likeliest fix, the site's advice."""
    WHOLE = auto()
    """All evidence and all fixes."""


def finding_lines(finding: Finding, detail: Detail) -> list[Line]:
    """The finding as lines. Below the first line, the first span of a line is its indentation, so a line that
    is too wide can hang below it (`text.hang`). A screen puts the severity's sign before the first."""
    if detail is Detail.SHORT:
        where = place_of(finding.subject)
        return [line(*_severity_and_rule(finding), f"{where}: {printable(finding.summary)}")]
    if detail is Detail.WHY:
        return [*finding_lines(finding, Detail.SHORT), *_why(finding)]
    tone = severity_tone(finding.severity)
    rows = [_head(finding), line("  ", Span(printable(finding.summary), tone))]
    rows += [_evidence_line(item) for item in finding.evidence]
    return rows + [row for fix in finding.fixes for row in fix_lines(fix)]


def shortened(finding: Finding, num_evidence: int, num_fixes: int) -> Finding:
    """The finding with its first pieces of evidence, each with the name of its file alone, and its first
    fixes."""
    evidence = (replace(item, file=item.file and item.file.rsplit("/", 1)[-1]) for item in finding.evidence)
    return replace(finding, evidence=tuple(evidence)[:num_evidence], fixes=finding.fixes[:num_fixes])


def _severity_and_rule(finding: Finding) -> Line:
    severity = Span(f"{finding.severity.word} ", severity_tone(finding.severity))
    return (severity, strong(printable(finding.rule)))


def _head(finding: Finding) -> Line:
    follows = f"follows from {printable(finding.consequence_of)}" if finding.consequence_of else ""
    remark = ", ".join(filter(None, (finding.doubt, follows)))
    return line(
        *_severity_and_rule(finding),
        strong(f" {printable(finding.name)}"),
        place_of(finding.subject),
        muted(f" ({remark})" if remark else ""),
    )


def place_of(subject: Subject) -> str:
    """` on node node1, rank 3, GPU 0`; empty if the data do not tell."""
    parts = (("node", subject.node), ("rank", subject.rank), ("GPU", subject.gpu))
    known = [f"{name} {value}" for name, value in parts if value is not None]
    return printable(f" on {', '.join(known)}" if known else "")


def _evidence_line(item: Evidence) -> Line:
    place = file_and_line(item)
    return line("    ", muted(f"{place}: " if place else ""), evidence_text(item))


def file_and_line(item: Evidence) -> str:
    """`FILE:LINE`, as far as it is known."""
    place = printable(item.file or "")
    return f"{place}:{item.line}" if place and item.line is not None else place


def evidence_text(item: Evidence) -> str:
    """The text of the evidence with its number. A quoted line that has the number already stays as it is."""
    text = printable(item.text)
    if item.value is None:
        return text
    unit, value = printable(item.unit or ""), short_number(item.value)
    if item.file is not None and value in text:
        return text
    # of a step or an epoch it is the number, not a count
    return f"{text}: {unit} {value}" if unit in ("step", "epoch") else f"{text}: {value} {unit}".rstrip()


def fix_lines(fix: Fix) -> list[Line]:
    """The title of a fix; below it the values that it changes, and its command, ready to be pasted."""
    learns = Span(" (changes the training result)" if fix.changes_learning else "", "warning")
    does = (changes_text(fix.changes), printable(fix.command or ""))
    return [
        line("  ", Span("fix: ", "good"), printable(fix.title), learns),
        *(line("       ", muted(text)) for text in does if text),
    ]


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


def _why(finding: Finding) -> Iterator[Line]:
    if place := _program_and_log(finding):
        yield line("  ", f"at {place}")
    first, *others = finding.fixes or (None,)
    if first is not None:
        yield from fix_lines(first)
    if others and others[-1].title.startswith(SITE_ADVICE):
        yield line("  ", printable(others[-1].title))


def _program_and_log(finding: Finding) -> str:
    """The program line that the traceback names, and the log line that shows it."""
    frames = filter(None, (_FRAME.search(item.text) for item in finding.evidence))
    program = next((printable(f"{frame[1]}:{frame[2]}") for frame in frames), "")
    log = next((file_and_line(item) for item in finding.evidence if item.file), "")
    return f"{program} (log {log})" if program and log else program or log
