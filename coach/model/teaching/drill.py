"""A drill: a run with exactly one planted fault, and a learner's answer to it.

What is planted stands here and in the drill's recipe alone; what judges a run never sees either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from coach.model.launching.launch import Scalar


class Need(StrEnum):
    """What a drill needs to show its symptom."""

    GPU = "gpu"
    TWO_NODES = "two_nodes"
    ROOT = "root"
    SLURM = "slurm"


@dataclass(frozen=True, slots=True)
class Twin:
    """The fault-free launch of the same size."""

    recipe: str
    set: Mapping[str, Scalar] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drill:
    """What a recipe plants, and what a learner is asked."""

    planted: str
    """The cause that a finding must carry."""
    choices: tuple[str, ...]
    """The learner's short list: the planted cause among others."""
    twin: Twin
    also: tuple[str, ...] = ()
    """Further causes that are judged right."""
    needs: tuple[Need, ...] = ()
    is_live: bool = True
    """Whether its symptom shows while it runs."""
    set: Mapping[str, Scalar] = field(default_factory=dict)
    """Values of parameters for a launch."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `LaunchRequest` for a launch."""
    mend: str | None = None
    """Where the fault is in the code: what the learner edits."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a learner has said of a drill's run: the newest try."""

    answer: str | None
    """The cause that was named; None: given up."""
    is_right: bool
    time_s: float | None
    num_tries: int = 1

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing left to find: it was named, or given up."""
        return self.is_right or self.answer is None
