"""How much somebody looks at coach, and what it spends on that: values, by which it asks more or less of the
cluster and the file server."""

from __future__ import annotations

from dataclasses import dataclass

ACTIVE_S = 120.0
"""Who pressed a key within this time is at work."""


@dataclass(frozen=True, slots=True)
class Attention:
    is_active: bool = True
    """Whether a key was pressed lately, in a terminal that has the focus."""
    is_focused: bool = True
    """Whether the terminal has the focus, as far as it tells."""
    is_run_open: bool = False
    """Whether a run is on the screen, whose files are to be followed closely."""
    is_asleep: bool = False
    """Nobody has pressed a key for so long that nothing is asked any more, until somebody does."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What was asked of Slurm in the last minute, of how much."""

    num_rpcs: int
    limit_per_min: float
    is_waiting: bool = False
    """True if the budget holds a question up."""
