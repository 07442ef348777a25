"""The line above an answer that was asked on demand: its age, that it is being asked, or why there is
none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coach.render.text import KeyLabel, Line, Span, age, line, line_width, printable, strong, wrap
from coach.tui.question import Answer


def answer_line(
    title: str, answer: Answer[Any], now_s: float, label: KeyLabel, since_s: float | None = None
) -> Line:
    """For example ` place in the queue   asked 12 s ago, ^r asks again`.

    `since_s`: the start of the job that the line is about. An older answer does not hold this job, so its age
    is left out while the next answer is awaited.
    """
    is_of_before = answer.is_under_way and (answer.time_s or 0.0) < (since_s or 0.0)
    parts = [strong(f" {title}")]
    if answer.value is not None and answer.time_s is not None and not is_of_before:
        parts.append(
            Span(f"   asked {age(now_s - answer.time_s)} ago, {label('refresh')} asks again", "muted")
        )
    if answer.is_under_way:
        parts.append(Span("   asking…", "accent"))
    if answer.error is not None:
        parts.append(Span(f"   ▲ not available: {printable(answer.error)}", "warning"))
    return line(*parts)


def answer_lines(title: str, answer: Answer[Any], now_s: float, label: KeyLabel, width: int) -> list[Line]:
    """The same line. An error that does not fit has lines of its own."""
    row = answer_line(title, answer, now_s, label)
    if answer.error is None or line_width(row) <= width:
        return [row]
    parts = wrap(f"not available: {printable(answer.error)}", width - 4)
    rows = [line(Span(f" {'  ' if index else '▲ '}{part}", "warning")) for index, part in enumerate(parts)]
    return [answer_line(title, replace(answer, error=None), now_s, label), *rows]
