"""Write the findings of one job as Markdown, for a mail, an issue or a chat. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from coach.analysis.judging.outcome_words import outcome_text
from coach.analysis.spelling.printable import printable
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.judging.finding import Diagnosis, Evidence, Finding

_INDENT = "    "
"""Four spaces make a code block. A text cannot end it, unlike a fence of backticks."""


def diagnosis_markdown(diagnosis: Diagnosis, name: str) -> str:
    """How the job ended, then each finding with its evidence and fixes. `name` is the job's name in the
    heading."""
    return "\n".join(_lines(diagnosis, name)) + "\n"


def _lines(diagnosis: Diagnosis, name: str) -> Iterator[str]:
    yield f"## {printable(name)}: {diagnosis.state or 'state unknown'}"
    if withheld := why_withheld(diagnosis):
        yield from ("", withheld.because)
        return
    if outcome := outcome_text(diagnosis.outcome):
        yield from ("", outcome)
    if not diagnosis.findings:
        yield from ("", "no finding")
    for finding in diagnosis.findings:
        yield ""
        yield from _finding(finding)


def _finding(finding: Finding) -> Iterator[str]:
    follows = f", follows from {finding.consequence_of}" if finding.consequence_of else ""
    yield f"### {finding.severity.word}: {finding.rule} {finding.name}{follows}"
    yield from ("", printable(finding.summary), "")
    for item in finding.evidence:
        yield _INDENT + _evidence(item)
    for fix in finding.fixes:
        yield from ("", f"Fix: {printable(fix.title)}")
        if fix.command:
            yield from ("", _INDENT + printable(fix.command))
        for key, value in fix.changes.items():
            yield from ("", f"{_INDENT}{printable(key)} = {printable(str(value))}")


def _evidence(item: Evidence) -> str:
    text = printable(item.text)
    if item.file is None:
        return text
    place = printable(item.file) + (f":{item.line}" if item.line is not None else "")
    return f"{place}: {text}"
