"""Describe one attempt in words: how it was made, what was changed, and the effect. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coach.analysis.comparing.two_runs import NOT_COMPARABLE, Row
from coach.model.judging.verdict import PastRun
from coach.model.training.run import Run


@dataclass(frozen=True, slots=True)
class Tried:
    """One attempt. `how`: how it was made and what was changed; `measured`: the effect."""

    target: str
    state: str | None
    ended_s: float | None
    found: str | None
    """The root cause found; None if there is no finding above info, or if not checked."""
    is_judged: bool
    how: list[str]
    measured: list[str]


def attempt(past: PastRun, this: PastRun) -> Tried:
    """Another attempt at the same work, compared with this one."""
    is_later = (past.submitted_s or 0.0) > (this.submitted_s or 0.0)
    changed = past.changes_since(this) if is_later else this.changes_since(past)
    when = "submitted after this one" if is_later else "submitted before this one"
    what = f"changed from {'this one to it' if is_later else 'it to this one'}: {'; '.join(changed)}"
    how = f"{when}, {what if changed else 'no change that coach knows of'}"
    return Tried(past.target, past.state, past.ended_s, found_in(past), past.is_judged, [how], [])


def found_in(past: PastRun | None) -> str | None:
    """The root cause of an attempt, with its code."""
    return None if past is None or past.rule is None else f"{past.rule} {past.summary or ''}".strip()


def how_made(run: Run) -> list[str]:
    """The fix, or the relaunch, that made this run from another; empty if there is no parent."""
    if run.fix is None:
        return [] if run.parent_run_id is None else [f"launched again from {run.parent_run_id}"]
    trial = "" if run.fix.trial_steps is None else f", tried for {run.fix.trial_steps} steps"
    made = f"made from {run.parent_run_id} by the fix of {run.fix.rule}: {run.fix.title}{trial}"
    return [made, *(f"{name} = {value}" for name, value in run.fix.changes.items())]


def measured_words(rows: Iterable[Row]) -> list[str]:
    """The effect of a change, a line for each quantity that can be compared."""
    return [
        _row_words(row)
        for row in rows
        if row.verdict != NOT_COMPARABLE and (row.before is not None or row.after is not None)
    ]


def _row_words(row: Row) -> str:
    unit = f" {row.unit}" if row.unit else ""
    why = f" ({row.because})" if row.because else ""
    return f"{row.quantity}: {_number(row.before)} → {_number(row.after)}{unit}, {row.verdict}{why}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
