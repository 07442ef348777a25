"""Explain a value on the screen: what it is, where it comes from, what to do.

Screens and commands share this look-up. Slurm's own words (states, reasons) are explained by their value, all
others by their column.
"""

from __future__ import annotations

from dataclasses import dataclass

from coach.analysis.explaining.texts import COLUMNS, JOB_STATES
from coach.analysis.queueing.node_state import STATE_WORDS, explain_state
from coach.analysis.queueing.pending_reasons import PendingClass, PendingReason, explain_pending

_OF_OTHERS = ("metrics/", "the sampler", "coach", "you")
"""Origins other than the row's source: the source's age does not apply to them."""


@dataclass(frozen=True, slots=True)
class Explained:
    """One value. `source` is the source whose age is the value's age; None: the age is not known."""

    name: str
    """The title on the screen: `STATE`."""
    value: str
    what: str
    origin: str
    to_do: str = ""
    source: str | None = None
    time_s: float | None = None
    """Time of measurement, if the value itself has one."""


def explain_column(table: str, column: str, title: str, value: str, source: str | None) -> Explained | None:
    """Explain a cell by its column; None if the column has no text."""
    text = COLUMNS.get(f"{table}.{column}")
    if text is None:
        return None
    what, origin, to_do = text
    if origin.startswith(_OF_OTHERS):
        source = None
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
    """Slurm's state in a cell, which may have a sign before it and a count after it."""
    found = [word for word in value.replace("+", " ").split() if word.isupper() and len(word) > 3]
    return found[0] if found else value


def explain_reason(why: PendingReason, source: str | None = None) -> Explained:
    """Explain why a job waits."""
    kind = {
        PendingClass.WAIT: "a wait",
        PendingClass.LIMIT: "a limit",
        PendingClass.NEVER: "never, as requested",
        PendingClass.HELD: "held",
        PendingClass.ENDED: "how an earlier attempt ended",
    }.get(why.kind, "not known to coach")
    starts = "" if why.starts_by_itself else "; it does not start by itself"
    return Explained(
        "REASON", why.reason, f"{why.meaning} ({kind}{starts})", "squeue, field Reason", why.advice, source
    )


def explain_word(word: str) -> Explained | None:
    """Explain one of Slurm's states or reasons, or a column as `table.column`; None if the word is
    unknown."""
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
