"""Recipes as rows and lines: the ladder, a lesson, the diff of a trainer, and the meaning of a parameter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from rich.cells import cell_len

from coach.launch import parameters
from coach.launch.meanings import limits_and_default
from coach.launch.parameters import Parameter
from coach.launch.recipe import is_shipped
from coach.launch.sweep_values import names_several
from coach.model.errors import UserError
from coach.render.text import (
    BLANK,
    Line,
    Span,
    Tone,
    beside,
    clip,
    fit,
    line,
    muted,
    printable,
    strong,
    wrap,
)
from coach.tui.render.plan import in_words_of_the_form, script_lines
from coach.tui.render.table import Cell, Column, Row, searchable
from coach.workflows.launching.recipes import Page, facts

RECIPE_COLUMNS = (
    Column("key", "", 1),
    Column("recipe", "RECIPE", 14, grow=3),
    Column("devices", "DEVICES", 8, priority=1),
)
_LABEL = 17
_NUMBERED = re.compile(r"\d{1,2}\. ")
_RULE = re.compile(r"[|:\- ]+")
"""The row below the heading of a Markdown table."""
TWO_COLUMNS, THREE_COLUMNS = 100, 150
"""From these widths on, a lesson, its diff and the expected result stand in two or three columns."""
_EXPECTED = ("**What to expect", "**What to look at", "**Duration", "**Rules worth watching")
_FACTS_EXPECTED = ("expect", "duration", "GPU-hours", "rules to watch", "shows on purpose")


def recipe_rows(pages: Iterable[Page]) -> list[Row]:
    """One row per recipe, in the order of the ladder."""
    rows = []
    for page in pages:
        recipe = page.recipe
        name, devices = printable(recipe.name), recipe.kind
        own = "" if is_shipped(recipe) else " (yours)"
        cells = (Cell(page.key or "", "key"), Cell(f"{name}{own}"), Cell(devices, "muted"))
        rows.append(Row(page.launch_name, cells, searchable(name, recipe.title, devices, own)))
    return rows


def lesson_lines(page: Page, width: int) -> list[Line]:
    """The recipe's purpose, its facts, then its lesson."""
    rows: list[Line] = [line(strong(f" {printable(page.recipe.title)}"))]
    rows += _wrapped(page.recipe.summary, width)
    rows.append(BLANK)
    for word, text in facts(page):
        first, *more = wrap(printable(text), max(20, width - _LABEL - 1)) or [""]
        rows.append(line(muted(f" {word:<{_LABEL}}"), first))
        rows += [line(" " * (_LABEL + 1) + row) for row in more]
    rows.append(BLANK)
    return rows + markdown_lines(page.lesson, width) if page.lesson else rows


def lesson_parts(lesson: str) -> tuple[str, str]:
    """The two parts of a lesson: what it teaches, and what the user sees after a launch."""
    taught: list[str] = []
    expected: list[str] = []
    part = taught
    for paragraph in lesson.split("\n\n"):
        if paragraph.startswith(("**", "#")):
            part = expected if paragraph.startswith(_EXPECTED) else taught
        part.append(paragraph)
    return "\n\n".join(taught), "\n\n".join(expected)


def expected_lines(page: Page, width: int) -> list[Line]:
    """The expected result: a sentence, the duration, the rules that may fire, and why."""
    rows: list[Line] = [line(strong(f" what {printable(page.recipe.name)} is to look like")), BLANK]
    for word, text in facts(page):
        if word in _FACTS_EXPECTED:
            rows += [line(muted(f" {word}")), *_wrapped(printable(text), width)]
    _, expected = lesson_parts(page.lesson)
    return [*rows, BLANK, *markdown_lines(expected, width)] if expected else rows


def side_by_side(page: Page, width: int) -> list[Line]:
    """Lesson, diff and expected result in three columns, or in two if there is no room for three."""
    taught = "\n\n".join(
        part for part in lesson_parts(page.lesson)[0].split("\n\n") if not part.startswith("#")
    )
    has_three = width >= THREE_COLUMNS
    first = width * 3 // 10 if has_three else width * 9 // 20
    head: list[Line] = [line(strong(f" {printable(page.recipe.title)}"))]
    lesson = [*head, *_wrapped(page.recipe.summary, first - 2), BLANK, *markdown_lines(taught, first - 2)]
    if not has_three:
        expected = expected_lines(page, first - 2)
        return beside([*lesson, BLANK, *expected], _cut(diff_lines(page), width - first), first)
    second = width * 4 // 10
    expected = expected_lines(page, width - first - second - 1)
    return beside(lesson, beside(_cut(diff_lines(page), second - 2), expected, second), first)


def _cut(rows: Sequence[Line], width: int) -> list[Line]:
    return [clip(row, width) for row in rows]


def markdown_lines(text: str, width: int) -> list[Line]:
    """The Markdown of lessons as lines: headings, bold, lists, tables, code. Paragraphs are wrapped; code is
    unchanged."""
    rows: list[Line] = []
    paragraph: list[str] = []
    table: list[str] = []

    def flush() -> None:
        if paragraph:
            rows.extend(_wrapped(" ".join(paragraph), width))
        rows.extend(_table_lines(table))
        paragraph.clear()
        table.clear()

    for raw in text.splitlines():
        said = printable(raw.rstrip().replace("\t", "    "))
        if bool(table) != said.startswith("|"):
            flush()
        if said.startswith("|"):
            table.append(said)
        elif raw.startswith("    ") and not paragraph:
            rows.append(line(Span(f" {said}", "accent")))
        elif not said:
            flush()
            rows.append(BLANK)
        elif said.startswith("#"):
            flush()
            rows.append(line(strong(f" {said.lstrip('# ')}")))
        elif said.lstrip().startswith(("- ", "* ")) or _NUMBERED.match(said):
            flush()
            paragraph.append(said.strip())
        else:
            paragraph.append(said.strip())
    flush()
    return rows


def _table_lines(table: Sequence[str]) -> list[Line]:
    """The rows of a Markdown table in columns, the first one as their heading."""
    parts = [row.strip("|").split("|") for row in table if not _RULE.fullmatch(row)]
    cells = [[part.strip().replace("**", "").replace("`", "") for part in row] for row in parts]
    widths = [max(map(cell_len, column)) for column in zip_longest(*cells, fillvalue="")]
    texts = [" " + "  ".join(map(fit, row, widths)).rstrip() for row in cells]
    return [line(strong(text) if index == 0 else text) for index, text in enumerate(texts)]


def _wrapped(text: str, width: int) -> list[Line]:
    """A paragraph or a list's item, with its `**bold**` beginnings set off."""
    is_item = text.startswith(("- ", "* "))
    plain = (text[2:] if is_item else text).replace("**", "").replace("`", "")
    head = text.split("**")[1] if text.startswith("**") and text.count("**") >= 2 else ""
    texts = wrap(printable(plain), max(20, width - (4 if is_item else 2)))
    rows: list[Line] = []
    for index, row in enumerate(texts):
        if is_item:
            rows.append(line(muted(" • " if index == 0 else "   "), row))
        elif index == 0 and head and row.startswith(head):
            rows.append(line(" ", strong(head), row.removeprefix(head)))
        else:
            rows.append(line(f" {row}"))
    return rows


def diff_lines(page: Page) -> list[Line]:
    """The trainer's diff from the previous step of the ladder."""
    if page.previous is None:
        return [line(muted(" the first step: there is nothing before it to compare with"))]
    if not page.diff:
        return [
            line(
                muted(
                    f" the trainer is that of {printable(page.previous)}: this recipe sets other parameters"
                )
            )
        ]
    num_added = sum(row.startswith("+") and not row.startswith("+++") for row in page.diff)
    num_removed = sum(row.startswith("-") and not row.startswith("---") for row in page.diff)
    head = line(
        strong(f" what {printable(page.recipe.name)} changes from {printable(page.previous)}"),
        muted(f"   +{num_added} −{num_removed}"),
    )
    return [head, BLANK, *unified_lines(page.diff)]


def unified_lines(diff: Sequence[str]) -> list[Line]:
    """The lines of a unified diff, with tones."""
    return [line(Span(f" {printable(row)}", _tone(row))) for row in diff]


def _tone(row: str) -> Tone:
    if row.startswith(("---", "+++")):
        return "strong"
    return (
        "added"
        if row.startswith("+")
        else "removed"
        if row.startswith("-")
        else "muted"
        if row[:2] == "@@"
        else ""
    )


def change_lines(diff: Sequence[str], script: str) -> list[Line]:
    """The changes in the script that the values of the form make, then the script."""
    changed = [row for row in diff if not row.startswith(("---", "+++"))]
    if not changed:
        head = [line(muted(" the script by default; this shows the changes that a value in the form makes"))]
    else:
        head = [line(strong(" changes of the script by the form")), *unified_lines(changed)]
    return [*head, BLANK, *script_lines(script)]


def problem_lines(error: UserError) -> list[Line]:
    """Why no script can be made from the values of the form."""
    return [line(Span(f" {printable(in_words_of_the_form(error).message)}", "critical"))]


def wrong_words(parameter: Parameter, text: str) -> str | None:
    """The error in the text of a field; None if it is a valid value, even an unusual one, or several values:
    the launch checks these."""
    if not text.strip():
        return None
    try:
        value = parameters.convert(parameter, text.strip(), parameter.name)
    except UserError as error:
        return None if names_several(parameter, text) else error.message
    return parameters.warning(parameter, value)


def meaning_lines(parameter: Parameter, problem: str | None, width: int) -> list[Line]:
    """The meaning of the parameter under the cursor, then its unit, limits and default, or the error in its
    value. Wrapped, never cut."""
    said = printable(f"{parameter.name}: {parameter.help}")
    below = limits_and_default(parameter) if problem is None else problem
    tone: Tone = "muted" if problem is None else "critical"
    rows = [line(f" {text}") for text in wrap(said, width)]
    return rows + [line(Span(f" {text}", tone)) for text in wrap(printable(below), width)]
