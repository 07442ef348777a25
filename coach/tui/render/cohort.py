"""A cohort as rows: one for each person's newest run of each recipe and drill, and one for each person
without runs."""

from __future__ import annotations

from coach.analysis.teaching.cohort_standing import finding_words, solved_words, state_words, verdict_words
from coach.model.teaching.cohort import Cohort, Person, Summary
from coach.tui.render.severity import job_state_tone, severity_sign, severity_tone
from coach.tui.render.table import Cell, Column, Row, searchable
from coach.tui.render.text import Line, Span, Tone, age, line, number, printable, wrap

COHORT_COLUMNS = (
    Column("user", "USER", 10, grow=2),
    Column("thing", "RECIPE OR DRILL", 15, grow=2),
    Column("state", "STATE", 14, grow=1),
    Column("rate", "SAMPLES/S", 9, align="right", priority=2),
    Column("finding", "FINDING", 12, grow=1),
    Column("solved", "SOLVED", 8),
    Column("age", "LAST WORD", 9, align="right", priority=3),
)
MAX_VERDICT_ROWS = 6
"""The most lines of verdicts, so that the table keeps most of the screen."""


def cohort_rows(cohort: Cohort, now_s: float) -> list[Row]:
    """The rows, by person. A person without runs has one row that says so."""
    rows = []
    for person in cohort.people:
        rows += [_row(person, each, now_s) for each in person.runs] or [_empty_row(person)]
    return rows


def row_key(person: Person, run_id: str = "") -> str:
    """The key of a row, which keeps the cursor in place."""
    return f"{person.user} {run_id}"


def _row(person: Person, each: Summary, now_s: float) -> Row:
    user, thing, state = (printable(text) for text in (person.user, each.thing, state_words(each, now_s)))
    finding, solved = printable(finding_words(each)), solved_words(each)
    tone: Tone = "muted"
    if each.severity is not None:
        finding, tone = f"{severity_sign(each.severity).text} {finding}", severity_tone(each.severity)
    is_silent = each.silent_s(now_s) is not None
    cells = (
        Cell(user),
        Cell(thing),
        Cell(state, "warning" if is_silent else job_state_tone(each.state)),
        Cell(number(each.samples_per_s)),
        Cell(finding, tone),
        Cell(solved, "good" if each.is_solved else "muted"),
        Cell(age(max(0.0, now_s - each.updated_time_s)), "muted"),
    )
    return Row(row_key(person, each.run_id), cells, searchable(user, thing, state, finding, solved))


def _empty_row(person: Person) -> Row:
    user = printable(person.user)
    cells = (Cell(user), Cell("nothing yet", "warning"), *[Cell("")] * 5)
    return Row(row_key(person), cells, searchable(user, "nothing yet"))


def cohort_title(cohort: Cohort) -> str:
    count = len(cohort.people)
    return f"{count} {'person' if count == 1 else 'people'} · {printable(cohort.directory)}"


def verdict_lines(cohort: Cohort, now_s: float, width: int) -> list[Line]:
    """The people who need help, and why, in words."""
    rows = []
    for words in verdict_words(cohort, now_s):
        for index, part in enumerate(wrap(printable(words), width - 4)):
            rows.append(line(Span(f" {'  ' if index else '▲ '}{part}", "warning")))
    return rows[:MAX_VERDICT_ROWS]
