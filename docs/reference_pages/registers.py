"""Pages of the rules' registers: causes and the edges between them, wordings of logs, drills."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from coach.launch.recipe import data_dir
from coach.launch.recipe_file import Recipe, read_recipe_file
from coach.launch.spelling import format_time
from coach.model.teaching.drill import Need
from coach.rules.causes import REGISTER, Code, Status
from coach.rules.documentation import rule_page
from coach.rules.registry import rule_classes
from coach.rules.wordings.rows import Wording
from reference_pages.markdown import UNSTORED, code, cut, page, table, text
from reference_pages.rules import wordings

_MAX_PATTERN, _MAX_EXAMPLE = 160, 100
_CAUSES = """\
A *cause* says what is wrong in one word, whichever rule found it: programs read it in the JSON of
`coach check`. A finding that another one explains is a *consequence*: it stands below it, and never
first."""
_EDGES = """\
Where both fire for one job, the left one explains the right one. Of several that explain one finding,
the one that stands first does."""
_WORDINGS = f"""\
What the rules look for in logs: a regular expression, a line that it matches, and where that was met:
in a recording of the tests, at a public address, or in a framework's source. Patterns are shown to
{_MAX_PATTERN} characters, examples to {_MAX_EXAMPLE}; the whole stands in `coach/rules/wordings/`. A
site or a user adds rows by `rules.files` ([config.md](../reference/config.md))."""
_DRILLS = """\
A drill is a training with one planted fault. `coach drill NAME` launches it, `coach drill NAME --answer
CAUSE` judges what you found, `--give-up` tells. *Choices* are the answers that are offered, in no
order; what is planted is not told here."""
_NEEDS = {
    Need.GPU: "a GPU",
    Need.TWO_NODES: "two nodes",
    Need.ROOT: "root",
    Need.SLURM: "Slurm",
}


def causes_page() -> str:
    """docs/made/causes.md."""
    by_cause = defaultdict(list)
    for rule in rule_classes():
        by_cause[rule.cause].append(rule.code)
    rows = [
        (code(cause), text(meaning), " ".join(map(_linked, sorted(by_cause[cause]))) or "–")
        for cause, meaning in sorted(REGISTER.causes.items())
    ]
    edges = [
        (_linked(edge.cause), _linked(edge.effect), text(edge.why) + _within(edge.within_lines))
        for edge in REGISTER.edges
    ]
    names = {rule.code: rule_page(rule).name for rule in rule_classes()}
    codes = [
        (_linked(row.code), text(names.get(row.code)), str(row.says), str(row.status), _special(row))
        for row in REGISTER.codes.values()
    ]
    return page(
        "Causes",
        _CAUSES,
        table(("cause", "what it means", "rules"), rows),
        "## What explains what",
        _EDGES,
        table(("explains", "is a consequence", "why"), edges),
        "## Codes",
        "What each code says about the process: `end` it ended it, `error` it ended it where it is critical,"
        " `course` it is about speed or quality and ends nothing.",
        table(("code", "name", "says", "status", "its place among others"), codes),
        made_by=UNSTORED,
    )


def wordings_page() -> str:
    """docs/made/wordings.md."""
    by_rule: dict[str, list[Wording]] = defaultdict(list)
    for row in wordings():
        by_rule[row.signature.rule].append(row)
    total = sum(map(len, by_rule.values()))
    parts = [_WORDINGS, f"{total} rows, of {len(by_rule)} rules."]
    names = {rule.code: rule_page(rule).name for rule in rule_classes()}
    for rule, rows in sorted(by_rule.items()):
        parts += [
            f"## {rule} {names[rule]}",
            table(
                ("kind", "pattern", "example", "met"),
                [
                    (
                        code(row.signature.name),
                        code(cut(row.signature.pattern, _MAX_PATTERN)),
                        code(cut(row.example, _MAX_EXAMPLE)),
                        _met(row),
                    )
                    for row in rows
                ],
            ),
        ]
    return page("Wordings", *parts, made_by=UNSTORED)


def drills_page() -> str:
    """docs/reference/drills.md."""
    folder = data_dir() / "recipes" / "drills"
    drills = [read_recipe_file(path, Path(data_dir() / "trainers")) for path in sorted(folder.glob("*.toml"))]
    return page(
        "Drills",
        _DRILLS,
        table(
            ("drill", "the complaint", "needs", "devices", "time limit", "choices"),
            [_drill(recipe) for recipe in drills],
        ),
    )


def _drill(recipe: Recipe) -> tuple[str, ...]:
    assert recipe.drill is not None, recipe.path
    needs = ", ".join(_NEEDS[need] for need in recipe.drill.needs)
    return (
        code(recipe.name),
        text(recipe.title),
        needs or "–",
        recipe.devices,
        "–" if recipe.time_limit_s is None else format_time(recipe.time_limit_s),
        ", ".join(map(code, sorted(recipe.drill.choices))),
    )


def _linked(rule: str) -> str:
    is_there = REGISTER.of(rule).status is not Status.RETIRED
    return f"[{rule}](rules/{rule}.md)" if is_there else code(rule)


def _within(lines: int | None) -> str:
    return "" if lines is None else f" (at most {lines} lines below it in one log)"


def _special(row: Code) -> str:
    said = [
        ("the end of another process explains it", row.explained_by_any_end),
        ("an end that stands above it in the log explains it", row.explained_by_end_above),
        ("another error just below it in the log explains it", row.explained_within_lines > 0),
        ("it counts as first, whenever it is told", row.is_told_late),
        ("it fires only where no other finding ended the process", row.is_last_resort),
    ]
    words = [each for each, is_so in said if is_so]
    if row.explained_by_earlier is not None:
        words.append(f"an earlier finding explains it, from {row.explained_by_earlier.word} on")
    if row.replaced_by:
        words.append(f"judged by {' '.join(row.replaced_by)} now")
    return "; ".join(words) or "–"


def _met(row: Wording) -> str:
    if row.source is not None:
        return text(row.source)
    assert row.seen is not None, "a row without either is refused"
    return text(row.seen) if row.seen.startswith("https://") else code(f"tests/{row.seen}")
