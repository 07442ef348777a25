"""Drills as rows and lines: the list of complaints, the short list of causes, and the response to an
answer."""

from __future__ import annotations

from collections.abc import Iterable

from coach.render.text import BLANK, KeyLabel, Line, Span, Tone, line, muted, printable, strong, wrap
from coach.tui.render.finding import whole_lines
from coach.tui.render.recipes import markdown_lines
from coach.tui.render.table import Cell, Column, Row, searchable
from coach.workflows.teaching.drill_answer import Judgement
from coach.workflows.teaching.drills import DrillEntry

DRILL_COLUMNS = (
    Column("drill", "DRILL", 15),
    Column("title", "THE COMPLAINT", 24, grow=3),
    Column("standing", "STATE", 12, grow=1),
)
CHOICE_COLUMNS = (Column("cause", "CAUSE", 24), Column("meaning", "MEANING", 24, grow=1))
GIVE_UP = "give up"


def drill_rows(entries: Iterable[DrillEntry]) -> list[Row]:
    """One row per drill."""
    rows = []
    for entry in entries:
        name, title, standing = (
            printable(text) for text in (entry.recipe.name, entry.recipe.title, entry.standing)
        )
        cells = (Cell(name), Cell(title), Cell(standing, _tone(entry)))
        rows.append(Row(entry.recipe.name, cells, searchable(name, title, standing)))
    return rows


def _tone(entry: DrillEntry) -> Tone:
    if entry.answer is not None and entry.answer.is_right:
        return "good"
    return "muted" if entry.run is None or (entry.answer and entry.answer.is_settled) else "accent"


def drill_lines(entry: DrillEntry, width: int, label: KeyLabel) -> list[Line]:
    """The complaint of one drill, the task, and its lesson if it is solved or given up."""
    rows: list[Line] = [line(strong(f" {printable(entry.recipe.title)}"))]
    rows += [line(f" {text}") for text in wrap(printable(entry.recipe.summary), width - 2)]
    rows.append(BLANK)
    if entry.skipped is not None:
        rows.append(line(Span(f" {printable(entry.skipped)}", "warning")))
    elif entry.run is None or entry.lesson:
        rows.append(line(Span(f" {label('open')}", "key"), " launches it"))
    elif entry.answer is not None and entry.answer.spoiled:
        spoiled = printable(f"spoiled: {entry.answer.spoiled}")
        rows += [line(Span(f" {text}", "warning")) for text in wrap(spoiled, width - 2)]
        rows.append(line(Span(f" {label('open')}", "key"), " launches it again"))
    else:
        rows.append(
            line(
                Span(f" {label('answer')}", "key"),
                " names its cause · ",
                Span(label("open"), "key"),
                " launches it again",
            )
        )
    return [*rows, BLANK, *markdown_lines(entry.lesson, width)] if entry.lesson else rows


def choice_rows(judgement: Judgement) -> list[Row]:
    """The short list of causes, with giving up at its end."""
    tried = judgement.answer.answer if judgement.answer is not None else None
    rows = []
    for choice in judgement.choices:
        tone: Tone = "muted" if choice.cause == tried else ""
        cells = (Cell(printable(choice.cause), tone), Cell(printable(choice.meaning), "muted"))
        rows.append(Row(choice.cause, cells, choice.cause))
    return [*rows, Row(GIVE_UP, (Cell(GIVE_UP, "muted"), Cell("coach shows the cause", "muted")), GIVE_UP)]


def judgement_lines(judgement: Judgement, width: int) -> list[Line]:
    """The evidence against a wrong answer; for a drill that is solved or given up, its proof and its lesson;
    for a spoiled one, how it ended."""
    answer = judgement.answer
    if answer is None:
        return [line(muted(" choose the cause: ↑ ↓ move, Enter names it"))]
    said = printable(answer.answer or "")
    if judgement.planted is None and not judgement.spoiled:
        rows: list[Line] = [line(Span(f" ✖ not {said}", "critical"))]
        for text in judgement.against:
            rows += [line(f"   {row}") for row in wrap(printable(text), width - 4)]
        return rows
    if judgement.planted is None:
        rows = []
    elif answer.is_right:
        rows = [line(Span(f" ✓ right: {said}", "good")), BLANK]
    else:
        rows = [line(strong(f" it is {printable(judgement.planted)}")), BLANK]
    if judgement.spoiled:
        spoiled = printable(f"spoiled: {judgement.spoiled}")
        rows += [*(line(Span(f" {text}", "warning")) for text in wrap(spoiled, width - 2)), BLANK]
    for finding in judgement.findings:
        rows += [*whole_lines(finding, width), BLANK]
    if not judgement.findings and not judgement.spoiled:
        rows += [line(muted(" the run shows no sign of the fault yet")), BLANK]
    return rows + markdown_lines(judgement.lesson, width)
