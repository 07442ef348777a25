"""Write the findings of one job as Markdown, for a mail, an issue or a chat. Pure.

Headings are in coach's own words. All text of logs, names and paths stands in code blocks, so none of it
acts as Markdown, HTML or a mention.
"""

from __future__ import annotations

from collections.abc import Iterator

from coach.analysis.judging.outcome_words import outcome_text
from coach.analysis.spelling.printable import printable
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.judging.finding import Diagnosis
from coach.render.finding import Detail, finding_lines
from coach.render.text import plain
from coach.render.ticket import PLAIN_WORD

_INDENT = "    "
"""Four spaces make a code block. A text cannot end it, unlike a fence of backticks."""


def diagnosis_markdown(diagnosis: Diagnosis, name: str) -> str:
    """How the job ended, then each finding with its evidence and fixes. `name` is the job's name in the
    heading."""
    return "\n".join(_lines(diagnosis, name)) + "\n"


def _lines(diagnosis: Diagnosis, name: str) -> Iterator[str]:
    state = diagnosis.state or "state unknown"
    if _is_plain(name) and _is_plain(state):
        yield f"## {name}: {state}"
    else:
        yield from ("## A job", "", _INDENT + printable(f"{name}: {state}"))
    if withheld := why_withheld(diagnosis):
        yield from ("", _INDENT + printable(withheld.because))
        return
    if outcome := outcome_text(diagnosis.outcome):
        yield from ("", _INDENT + printable(outcome))
    if not diagnosis.findings:
        yield from ("", "no finding")
    for finding in diagnosis.findings:
        yield ""
        yield from (_INDENT + plain(row) for row in finding_lines(finding, Detail.WHOLE))


def _is_plain(text: str) -> bool:
    """True if no word of the text can be Markdown."""
    return all(map(PLAIN_WORD.fullmatch, text.split(" ")))
