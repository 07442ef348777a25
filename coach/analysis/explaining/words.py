"""Explains a value where it stands: what it is, where it comes from, what to do.

One lookup for screens and commands. What is Slurm's own (a state, a reason) is explained by its value, what
is a column's by the column.
"""

from __future__ import annotations

from dataclasses import dataclass

from coach.analysis.explaining.texts import COLUMNS, JOB_STATES
from coach.analysis.queueing.node_state import STATE_WORDS, explain_state
from coach.analysis.queueing.pending_reasons import PendingClass, PendingReason, explain_pending


@dataclass(frozen=True, slots=True)
class Explained:
    """One value. `source` is the name of the source whose age is its age; None: its age is not known."""

    name: str
    """What it is called on the screen: `STATE`."""
    value: str
    what: str
    origin: str
    to_do: str = ""
    source: str | None = None
    time_s: float | None = None
    """When it was measured, where the value itself tells."""


def explain_column(table: str, column: str, title: str, value: str, source: str | None) -> Explained | None:
    """A cell by its column; None where there is no text for it."""
    text = COLUMNS.get(f"{table}.{column}")
    if text is None:
        return None
    what, origin, to_do = text
    told = Explained(title or column.upper(), value, what, origin, to_do, source)
    if column == "state" and table != "nodes":
        return _with_state(told)
    if column == "state":
        return Explained(told.name, value, explain_state(value.lstrip("✖■▲●✓○ ")).meaning, origin, "", source)
    return told


def _with_state(told: Explained) -> Explained:
    meaning = JOB_STATES.get(_word(told.value))
    if meaning is None:
        return told
    return Explained(told.name, told.value, meaning[0], told.origin, meaning[1], told.source)


def _word(value: str) -> str:
    """Slurm's state in a cell, which may have a sign before it and a count behind it."""
    found = [word for word in value.replace("+", " ").split() if word.isupper() and len(word) > 3]
    return found[0] if found else value


def explain_reason(why: PendingReason, source: str | None = None) -> Explained:
    """Why a job waits."""
    kind = {
        PendingClass.WAIT: "a wait",
        PendingClass.LIMIT: "a limit",
        PendingClass.NEVER: "never, as it was asked for",
        PendingClass.HELD: "held",
        PendingClass.ENDED: "how an earlier attempt ended",
    }.get(why.kind, "not known to coach")
    starts = "" if why.starts_by_itself else "; it does not start by itself"
    return Explained(
        "REASON", why.reason, f"{why.meaning} ({kind}{starts})", "squeue, field Reason", why.advice, source
    )


def explain_word(word: str) -> Explained | None:
    """A state or reason of Slurm's, or a column by `table.column`, as a command is given it; None: no such
    word."""
    if word in COLUMNS:
        table, _, column = word.partition(".")
        return explain_column(table, column, "", "", None)
    if word.upper() in JOB_STATES:
        what, to_do = JOB_STATES[word.upper()]
        return Explained("STATE", word.upper(), what, "squeue, field State", to_do)
    reason = explain_pending(word)
    if reason.kind is not PendingClass.UNKNOWN:
        return explain_reason(reason)
    state = explain_state(word)
    if state.words and set(state.words) <= STATE_WORDS:
        return Explained("NODE STATE", word, state.meaning, "scontrol show nodes, State")
    return None
