"""A drill: a run with exactly one planted fault, and a learner's answer to it.

The planted fault is stated only here and in the drill's recipe; the judging code never sees either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from coach.model.judging.finding import Finding
from coach.model.launching.launch import Scalar


class Need(StrEnum):
    """A requirement of a drill: without it the symptom does not show."""

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
    """The planted fault of a recipe, and the question to the learner."""

    planted: str
    """The cause that the finding must have."""
    choices: tuple[str, ...]
    """The causes that the learner chooses from: the planted one, those of `also`, and wrong ones."""
    twin: Twin
    also: tuple[str, ...] = ()
    """Other causes that the finding may have on some machines."""
    needs: tuple[Need, ...] = ()
    is_live: bool = True
    """True if the symptom shows while the run is active."""
    set: Mapping[str, Scalar] = field(default_factory=dict)
    """Parameter values of the launch."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `LaunchRequest`."""
    mend: str | None = None
    """The place of the fault in the code, for the learner to edit."""

    def right_answers(self, findings: Sequence[Finding]) -> frozenset[str]:
        """The answers that a run proves right; none if it ended otherwise than planned.

        A run that shows the planted cause proves each accepted answer. If another accepted cause is primary,
        only the causes that the run shows are right: a loss of 1e13 was never NaN.
        """
        accepted = {self.planted, *self.also}
        causes = {finding.rule: finding.cause for finding in findings}
        shown = {
            finding.cause
            for finding in findings
            if finding.cause in accepted
            and (finding.consequence_of is None or causes.get(finding.consequence_of) in accepted)
        }
        if self.planted in shown:
            return frozenset(accepted)
        return frozenset(shown if findings and findings[0].cause in accepted else ())


@dataclass(frozen=True, slots=True)
class Answer:
    """A learner's latest answer to a drill."""

    answer: str | None
    """The cause that the learner named; None: given up."""
    is_right: bool
    time_s: float | None
    num_tries: int = 1
    spoiled: str | None = None
    """How the run ended, if the planted fault did not end it: the answer does not count. None for any other
    run."""

    @property
    def is_settled(self) -> bool:
        """True if the cause was named, or the learner gave up."""
        return self.is_right or self.answer is None

    @property
    def is_solved(self) -> bool | None:
        """None if the answer does not count."""
        return None if self.spoiled and not self.is_settled else self.is_right
