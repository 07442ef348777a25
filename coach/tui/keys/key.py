"""What a key is, and the sorts of places where keys work.

Apart from the tables of keys, which are made of it.
"""

from __future__ import annotations

from dataclasses import dataclass

LISTS = frozenset({"cluster", "runs", "recipes", "drills", "history", "findings", "cohort"})
SHOWS = LISTS | {"run", "gpus", "job", "log", "node", "where", "finding", "compare"}
ASKS = frozenset({"plan", "confirm", "fix", "stacks", "answer"})
JOBS = frozenset({"cluster", "run", "job"})
VIEWS = frozenset({"cluster", "history"})
EVERYWHERE = SHOWS | ASKS | {"help", "doctor"}


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `action` is the method on the screen or, with `app.`, on the app."""

    id: str
    key: str
    label: str
    """As it is shown: `Enter`, `Tab`, `x`."""
    word: str
    """One word for the footer; empty: not shown there."""
    description: str
    tooltip: str
    places: frozenset[str]
    action: str
    is_change: bool = False
    """Whether it leads to something being launched, cancelled or relaunched."""
    is_priority: bool = False
    """Whether it works even while a field is edited."""
