"""A ladder: a group of runs of several recipes, each beside the figure that a document states for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RUNG = "rung"
"""The `parameter` of a group that was launched as a ladder; its values are the names of rungs."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of a ladder, with the figure that it is measured against."""

    name: str
    recipe: str
    """The recipe's name in a launch."""
    set: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that differ from the recipe's defaults."""
    ranks: int | None = None
    """Ranks in all; None: as many as the recipe starts."""
    min_ranks: int | None = None
    """The fewest ranks with which the rung is still run where `ranks` are too many; None: `ranks`."""
    repeats: int = 1
    """Number of its runs."""
    shows: str | None = None
    """What the rung shows, in one sentence."""
    samples_per_s: tuple[float, float] | None = None
    """The document's figure of the rate, from the least to the most; None: it states none."""
    ratio: tuple[float, float] | None = None
    """The document's figure of the rate over the first rung's."""
    source: str | None = None
    """Where the document states it."""
    wrong_because: str | None = None
    """Why the figure itself cannot be right, if that is known."""
    why_not: str | None = None
    """Why this site cannot start all its ranks; None: it can. The rung then has no run, or runs of fewer
    ranks."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """A whole ladder, as its file says it."""

    name: str
    title: str
    rungs: tuple[Rung, ...]
    is_for_gpus: bool = False
    """True if the document's figures are for GPUs: a run on CPUs cannot reach or miss them."""
