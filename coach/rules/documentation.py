"""The page of a rule: its docstring, split by the five headings, with the thresholds in force.

`coach explain`, the screens and the generated documentation share this text, so they cannot differ.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import wrap

from coach.rules.base import Rule, Threshold
from coach.rules.causes import REGISTER, Edge, Status
from coach.rules.wordings.rows import shipped

HEADINGS = ("What it sees", "Why it matters", "When it stays silent", "What to do", "Sources")


@dataclass(frozen=True, slots=True)
class ThresholdLine:
    """One threshold with its current value."""

    threshold: Threshold
    value: float

    @property
    def is_changed(self) -> bool:
        return self.value != self.threshold.default


@dataclass(frozen=True, slots=True)
class RulePage:
    """The page's contents. `sections` maps the five headings, in order, to text; `meaning` explains the
    rule's cause in one sentence."""

    code: str
    name: str
    cause: str
    meaning: str
    severity: str
    summary: str
    sections: Mapping[str, str]
    thresholds: tuple[ThresholdLine, ...]
    explained_by: tuple[Edge, ...]
    explains: tuple[Edge, ...]
    is_proven: bool
    is_muted: bool = False


def rule_page(
    rule: type[Rule], values: Mapping[str, float] | None = None, is_muted: bool = False
) -> RulePage:
    """Read a rule's docstring. Raises ValueError if a heading is missing; a test calls this for every
    rule."""
    summary, sections = _sections(rule)
    missing = [heading for heading in HEADINGS if not sections.get(heading)]
    if missing or not summary:
        raise ValueError(f"{rule.code}: the docstring lacks {', '.join(missing) or 'its first line'}")
    used = rule(values).values
    return RulePage(
        code=rule.code,
        name=rule.name,
        cause=rule.cause,
        meaning=REGISTER.causes[rule.cause],
        severity=rule.severity.word,
        summary=summary,
        sections={heading: sections[heading] for heading in HEADINGS},
        thresholds=tuple(ThresholdLine(item, used[item.name]) for item in rule.thresholds),
        explained_by=REGISTER.explaining(rule.code),
        explains=tuple(edge for edge in REGISTER.edges if edge.cause == rule.code),
        is_proven=REGISTER.of(rule.code).status is not Status.UNPROVEN,
        is_muted=is_muted,
    )


def rule_summary(rule: type[Rule]) -> str:
    """The first line of a rule's docstring."""
    return inspect.cleandoc(rule.__doc__ or "").partition("\n")[0]


def _sections(rule: type[Rule]) -> tuple[str, dict[str, str]]:
    lines = inspect.cleandoc(rule.__doc__ or "").splitlines()
    summary = lines[0].strip() if lines else ""
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines[1:]:
        if line.strip() in HEADINGS and not line.startswith(" "):
            current = sections.setdefault(line.strip(), [])
        else:
            current.append(line)
    return summary, {
        heading: inspect.cleandoc("\n" + "\n".join(body)).strip() for heading, body in sections.items()
    }


def place_among_others(page: RulePage) -> dict[str, list[str]]:
    """Heading → lines: rules that explain its findings, and rules that its findings explain. Empty if there
    are none."""
    row = REGISTER.of(page.code)
    by = [f"{edge.cause}: {edge.why}{_reach(edge)}" for edge in page.explained_by]
    if row.explained_by_any_end:
        by.append("whatever ended another process of the job")
    if row.explained_by_end_above:
        by.append("whatever ended another process of the job, above it in the log")
    if row.explained_by_earlier is not None:
        by.append(f"whatever is at least {row.explained_by_earlier.word} and did not come after it")
    if row.explained_within_lines:
        by.append(f"any other error within {row.explained_within_lines} lines below it in the log")
    found = {
        "Explained by": by,
        "Explains": [f"{edge.effect}: {edge.why}{_reach(edge)}" for edge in page.explains],
    }
    return {heading: lines for heading, lines in found.items() if lines}


def _reach(edge: Edge) -> str:
    return "" if edge.within_lines is None else f" (within {edge.within_lines} lines of the log)"


def page_text(page: RulePage) -> str:
    """The page as plain text."""
    status = "" if page.is_proven else ", unproven: at most info"
    muted = " (muted in the config)" if page.is_muted else ""
    lines = [
        f"{page.code} {page.name} [{page.severity}{status}]{muted}",
        page.summary,
        f"cause: {page.cause}: {page.meaning}",
    ]
    for heading, body in page.sections.items():
        lines += ["", heading, *(f"  {line}".rstrip() for line in body.splitlines())]
    for heading, told in place_among_others(page).items():
        lines += ["", heading, *(f"  {line}" for line in told)]
    words = dict.fromkeys(f'"{row.literals[0]}…"' for row in shipped().get(page.code, ()))
    if words:
        text = f"lines that contain, among others: {', '.join(words)}"
        lines += ["", "In logs", *wrap(text, 100, initial_indent="  ", subsequent_indent="  ")]
    if page.thresholds:
        lines += ["", "Thresholds"]
        for item in page.thresholds:
            changed = f" (default {item.threshold.default:g})" if item.is_changed else ""
            lines.append(
                f"  {item.threshold.name} = {item.value:g} {item.threshold.unit}{changed}: "
                f"{item.threshold.reason}"
            )
        first = page.thresholds[0]
        lines += [
            "",
            f"  change it in config.toml: [rules.{page.code}] {first.threshold.name} = {first.value:g}",
        ]
    return "\n".join(lines) + "\n"
