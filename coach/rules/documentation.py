"""The page of a rule: its docstring, read by its five headings, with the thresholds in force.

One text serves `coach explain`, the screens and the generated documentation, so none of them can say
something else.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass

from coach.rules.base import Rule, Threshold

HEADINGS = ("What it sees", "Why it matters", "When it stays silent", "What to do", "Sources")


@dataclass(frozen=True, slots=True)
class ThresholdLine:
    """One threshold with the value that is used now."""

    threshold: Threshold
    value: float

    @property
    def is_changed(self) -> bool:
        return self.value != self.threshold.default


@dataclass(frozen=True, slots=True)
class RulePage:
    """What is known about one rule. `sections` has the five headings, in order."""

    code: str
    name: str
    cause: str
    severity: str
    summary: str
    sections: Mapping[str, str]
    thresholds: tuple[ThresholdLine, ...]
    is_proven: bool
    is_muted: bool = False


def rule_page(
    rule: type[Rule], values: Mapping[str, float] | None = None, is_muted: bool = False
) -> RulePage:
    """Read a rule's docstring. Raises ValueError where a heading is missing: a test calls this for every
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
        severity=rule.severity.word,
        summary=summary,
        sections={heading: sections[heading] for heading in HEADINGS},
        thresholds=tuple(ThresholdLine(item, used[item.name]) for item in rule.thresholds),
        is_proven=rule.is_proven,
        is_muted=is_muted,
    )


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


def page_text(page: RulePage) -> str:
    """The page as plain text."""
    status = "" if page.is_proven else ", unproven: at most info"
    muted = " (muted in the config)" if page.is_muted else ""
    lines = [
        f"{page.code} {page.name} [{page.severity}{status}]{muted}",
        page.summary,
        f"cause: {page.cause}",
    ]
    for heading, body in page.sections.items():
        lines += ["", heading, *(f"  {line}".rstrip() for line in body.splitlines())]
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
