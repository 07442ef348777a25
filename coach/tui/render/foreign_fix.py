"""The fixes of a job that coach did not launch, as changes of its script. The author of the script reads and
applies them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coach.analysis.spelling.slurm import format_time
from coach.render.finding import fix_lines
from coach.render.text import BLANK, Line, hang, line, muted, printable, wrap
from coach.tui.render.fix import diff_lines, why_lines

if TYPE_CHECKING:
    from coach.launch.resubmission import Resubmission
    from coach.workflows.launching.foreign_fix import ForeignFix, ForeignFixes


AGAIN_FIELDS = (
    ("time", "time limit", "Ended after this time, as 1:30:00."),
    ("mem", "memory per node", "RAM on each node, as 16G or 800M."),
    ("exclude", "leave out nodes", "Nodes to leave out: n1,n[3-5]."),
    ("array", "array tasks", "Tasks to run again, as 3,7 or 0-9."),
)
"""For each field: option of sbatch, label, meaning."""


def first_values(
    again: Resubmission, found: ForeignFixes | None, limit_s: int | None = None
) -> dict[str, str]:
    """Option → the value that a finding suggests, else the job's own value. Only an array has the option for
    its tasks. `limit_s` is the partition's time limit, if the job requests more."""
    values = {option: again.value(option) for option, *_ in AGAIN_FIELDS}
    if limit_s is not None:
        values["time"] = format_time(limit_s)
    for each in reversed(found.fixes if found is not None else ()):
        values |= {key: str(value) for key, value in each.fix.changes.items() if key in values}
    if not again.tasks:
        del values["array"]
    return values


def foreign_fix_lines(found: ForeignFixes, lost: Sequence[str], width: int) -> list[Line]:
    """The source of the script's copy, the work that ending the job now would lose, and every fix with its
    diff."""
    if found.origin is not None:
        head = f"script: {found.origin}, {found.framework}"
    else:
        head = f"no diff: {found.problem}"
    rows: list[Line] = [line(muted(f" {text}")) for text in wrap(printable(head), width - 2)]
    if lost:
        rows.append(line(muted(" if you cancel it now:")))
        rows.extend(line(muted(f"   {text}")) for said in lost for text in wrap(printable(said), width - 4))
    shown = None
    for each in found.fixes:
        if each.finding is not shown:
            shown = each.finding
            rows.extend((BLANK, *why_lines(each.finding, width)))
        rows.extend((BLANK, *_fix_lines(each, width)))
    return [*rows, BLANK, line(muted(" coach changes no script: make a change above yourself"))]


def _fix_lines(each: ForeignFix, width: int) -> list[Line]:
    rows = [part for row in fix_lines(each.fix) for part in hang(row, width - 2)]
    rows.extend(line(f"   {text}") for words in each.unsaid for text in wrap(printable(words), width - 4))
    return [*rows, *(diff_lines(each.diff) if each.diff else ())]
