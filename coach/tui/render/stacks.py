"""Stacks of all ranks as lines, and the question before coach enters a job that it did not launch."""

from __future__ import annotations

from collections.abc import Sequence

from coach.analysis.measured.stack_groups import Kind, ReportLine, merge, report
from coach.model.training.other_machine import rough_age
from coach.model.training.stacks import StackBurst, Stacks, StacksPlan
from coach.render.text import BLANK, Line, Span, Tone, line, muted, printable, wrap
from coach.tui.render.action import command_lines, note_lines

_TONES: dict[Kind, Tone] = {
    Kind.VERDICT: "strong",
    Kind.ODD: "warning",
    Kind.GROUP: "accent",
    Kind.DETAIL: "muted",
    Kind.FRAME: "",
}
_SIGNS = {Kind.ODD: "▲ "}


def stacks_lines(stacks: Stacks, width: int) -> list[Line]:
    """The whole report, wrapped: paths are long, and a cut would remove the line number at their end."""
    return [row for each in report(stacks, merge(stacks)) for row in _wrapped(each, width)]


def burst_lines(bursts: Sequence[StackBurst], now_s: float, width: int, most: int = 4) -> list[Line]:
    """The last sampled stack of each rank, with its age."""
    newest = {(burst.node, burst.label): burst for burst in bursts}
    if not newest:
        return []
    age = rough_age(now_s - max(burst.time_s for burst in newest.values()))
    rows = [line(" stacks", muted(f"  sampled {age} ago"))]
    rows += [
        line(f"   {printable(burst.label)}: {printable(burst.words)}"[: width - 1])
        for burst in sorted(newest.values(), key=lambda burst: burst.rank or 0)[:most]
    ]
    return [*rows, *([line(muted(f"   and {len(newest) - most} more ranks"))] if len(newest) > most else [])]


def question_lines(plan: StacksPlan, width: int) -> list[Line]:
    """The question. The command is wrapped, never cut, because the user confirms it."""
    return [BLANK, *command_lines((plan.command,), width), BLANK, *note_lines(plan.notes, width)]


def _wrapped(row: ReportLine, width: int) -> list[Line]:
    indent = " " * (row.indent + 1)
    text = _SIGNS.get(row.kind, "") + printable(row.text)
    parts = wrap(text, max(20, width - len(indent) - 2)) or [""]
    rows = [line(indent, Span(parts[0], _TONES[row.kind]))]
    return rows + [line(indent, "  ", Span(part, _TONES[row.kind])) for part in parts[1:]]
