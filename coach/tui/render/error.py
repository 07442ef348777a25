"""A refused action or bad input, in full."""

from __future__ import annotations

from coach.model.errors import UserError
from coach.render.text import Line, Span, line, printable, wrap


def error_lines(error: UserError, width: int) -> list[Line]:
    """A refusal in full: every line of Slurm's message, then the hint."""
    rows: list[Line] = []
    for part in error.lines:
        for index, text in enumerate(wrap(printable(part), width - 5) or [""]):
            rows.append(
                line(Span(" ✖ " if index == 0 and not rows else "   ", "critical"), Span(text, "critical"))
            )
    if error.hint:
        rows.extend(line(f"   {text}") for text in wrap(printable(error.hint), width - 5))
    for part in error.diff:
        rows.extend(line(f"   {text}") for text in wrap(printable(part.expandtabs(4)), width - 5))
    return rows
