"""The user's attention to coach, and coach's load on the cluster. Sources poll Slurm and the file server more
or less often depending on them."""

from __future__ import annotations

from dataclasses import dataclass

ACTIVE_S = 120.0
"""A user who pressed a key within this time is active."""


@dataclass(frozen=True, slots=True)
class Attention:
    is_active: bool = True
    """True if a key was pressed within `ACTIVE_S` in a terminal that has the focus."""
    is_focused: bool = True
    """True if the terminal has the focus, or does not report its focus."""
    is_run_open: bool = False
    """True if a run is on the screen: its files are then read often."""
    is_asleep: bool = False
    """True after a long time without a key: all polling stops until the next key."""


@dataclass(frozen=True, slots=True)
class Spending:
    """Requests to Slurm in the last minute, and the limit."""

    num_rpcs: int
    limit_per_min: float
    is_waiting: bool = False
    """True if a request waits because the budget is used up."""
