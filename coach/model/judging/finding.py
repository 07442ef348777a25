"""Findings: what a rule saw, its proof, and what to do. The public JSON is made of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from coach.model.judging.outcome import Outcome

_CLEAR, _LIKELY = 0.9, 0.7
"""From these confidences on a finding counts as clear, and as likely."""


class Severity(IntEnum):
    """Ordered: the cause that ended a run is at least a warning."""

    INFO = 1
    WARNING = 2
    CRITICAL = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Evidence:
    """One piece of proof: numbers with their window, or a log line with its place."""

    text: str
    file: str | None = None
    line: int | None = None
    value: float | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """Where it happens, as far as the data says."""

    node: str | None = None
    rank: int | None = None
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Fix:
    """A typed change of the launch, or a command for a job that coach did not launch."""

    title: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Keys: recipe batch_size gradient_accumulation lr warmup_steps num_workers precision
    activation_checkpointing, and so on; mem time signal exclude env num_nodes gpus_per_node nproc_per_node
    cpus_per_task."""
    command: str | None = None
    changes_learning: bool = False
    """Whether it changes what is learned; then it is never applied without asking."""


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """What a rule needed and did not get: why, and how to get it."""

    what: str
    because: str
    how: str


@dataclass(frozen=True, slots=True)
class Hit:
    """What `Rule.check` yields while its condition holds. The engine makes findings of hits that last."""

    summary: str
    evidence: tuple[Evidence, ...]
    confidence: float
    subject: Subject = Subject()
    fixes: tuple[Fix, ...] = ()
    severity: Severity | None = None
    """None: the rule's own."""
    cause: str | None = None
    """None: the rule's own."""
    since_s: float | None = None
    """When the condition began, in the data's time, if the rule knows."""
    consequence_of: tuple[str, ...] | None = None
    """Codes of rules that, firing on the same target, explain this hit. None: those that the rule names."""
    is_intended: bool = False
    """True for an end that the user asked for: what it explains is no trouble either."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A hit that lasted, in its place among the others."""

    rule: str
    name: str
    cause: str
    severity: Severity
    confidence: float
    is_primary: bool
    consequence_of: str | None
    """Code of the rule whose finding caused this one."""
    subject: Subject
    summary: str
    evidence: tuple[Evidence, ...]
    fixes: tuple[Fix, ...]
    since_s: float | None

    @property
    def doubt(self) -> str:
        """How much the rule doubts itself, in a word; empty where it does not.

        `confidence` is an estimate of the rule's author: too few labelled logs per rule stand behind it for a
        percentage.
        """
        return "" if self.confidence >= _CLEAR else "likely" if self.confidence >= _LIKELY else "possible"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that is known about one target: findings, primary first, and what could not be judged."""

    target: str
    state: str | None
    findings: tuple[Finding, ...]
    not_measured: tuple[NotMeasured, ...]
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """`RULE.name` → the value used, for every threshold of the rules that ran."""
    has_gone_well: bool = False
    """True if it was seen to train, or to end well: only then is a target without a finding healthy."""
    outcome: Outcome | None = None
    """How it ended; None in a diagnosis that was kept."""
