"""A page for every rule, from the same docstrings that `coach explain` prints, and the wordings that it
knows, each with the place where it was met."""

from __future__ import annotations

import re
from functools import cache

from coach.rules.documentation import RulePage, place_among_others, rule_page
from coach.rules.registry import rule_classes
from coach.rules.wordings.rows import Wording, parse, shipped_files

_MAX_CHARS = 120
"""Of an example: enough to know the wording by."""
_CODE = re.compile(r"^[A-Z]{3}\d{3}(?=: )")
_INDEX = """# Rules

`coach explain CODE` prints such a page without its wordings, and with the thresholds in force; `coach explain
--list` lists all rules.
"""


def rule_pages() -> dict[str, str]:
    """File name → text of every page."""
    found = [rule_page(rule) for rule in rule_classes()]
    known = {page.code: [row for row in wordings() if row.signature.rule == page.code] for page in found}
    return {f"{page.code}.md": _page(page, known[page.code]) for page in found} | {"README.md": _index(found)}


@cache
def wordings() -> tuple[Wording, ...]:
    """The rows of all tables, with the places where they were met."""
    return tuple(row for table in shipped_files() for row in parse(table.read_text("utf-8"), table.name))


def _index(found: list[RulePage]) -> str:
    lines = [_INDEX, *_table([page for page in found if page.is_proven])]
    unproven = [page for page in found if not page.is_proven]
    if unproven:
        lines += [
            "",
            "## Unproven: nobody has seen them for real yet, so they are at most `info`",
            "",
            *_table(unproven),
        ]
    return "\n".join([*lines, ""])


def _table(found: list[RulePage]) -> list[str]:
    rows = [
        f"| [{page.code}]({page.code}.md) | {page.name} | {page.severity} | {_cell(page.summary)} |"
        for page in found
    ]
    return ["| code | name | severity | what |", "|---|---|---|---|", *rows]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _page(page: RulePage, wordings: list[Wording]) -> str:
    status = "" if page.is_proven else " · unproven: at most info"
    cause = f"`{page.cause}` · {page.severity}{status}"
    lines = [f"# {page.code} {page.name}", "", page.summary, "", cause, "", page.meaning]
    for heading, body in page.sections.items():
        lines += ["", f"## {heading}", "", body]
    for heading, told in place_among_others(page).items():
        lines += ["", f"## {heading}", "", *(f"- {_linked(line)}" for line in told)]
    if page.thresholds:
        lines += ["", "## Thresholds", "", "| name | default | unit | why |", "|---|---|---|---|"]
        lines += [
            (
                f"| `{item.threshold.name}` | {item.threshold.default:g} | {item.threshold.unit} | "
                f"{_cell(item.threshold.reason)} |"
            )
            for item in page.thresholds
        ]
    return "\n".join([*lines, *_wordings(wordings), ""])


def _wordings(rows: list[Wording]) -> list[str]:
    """The log patterns of the rule, folded, because readers look them up and do not read them."""
    if not rows:
        return []
    title = f"{len(rows)} wording{'s' * (len(rows) > 1)}, by kind, and where each was met"
    told = [f"- {row.signature.name}: {_code(row.example)} · {_met(row)}" for row in rows]
    return ["", "## Wordings", "", f"<details><summary>{title}</summary>", "", *told, "", "</details>"]


def _code(text: str) -> str:
    """An unchanged line of a log, in a code span that its own backticks do not end."""
    text = text.strip()
    text = text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…"
    runs = {len(run) for run in re.findall("`+", text)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    padding = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def _met(row: Wording) -> str:
    if row.source is not None:
        return row.source
    assert row.seen is not None, "a row without either is refused"
    return f"<{row.seen}>" if row.seen.startswith("https://") else f"`tests/{row.seen}`"


def _linked(line: str) -> str:
    """With the code at the line's start as a link to its page."""
    return _CODE.sub(r"[\g<0>](\g<0>.md)", line)
