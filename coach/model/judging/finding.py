"""Findings: the observation of a rule, its evidence, and its fixes. The public JSON is made of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from coach.model.judging.outcome import Outcome

_CLEAR, _LIKELY = 0.9, 0.7
"""Smallest confidence of a clear finding, and of a likely one."""


PRIMARY = "primary"
"""Needed by a fix that is for a primary finding alone. The engine decides it, because it orders findings."""
SITE_ADVICE = "your site: "
"""The begin of the title of the fix that holds the site's own advice."""
PROGRESS = "progress"
"""The measurement that is missing while a running job is silent for long."""
SAMPLER = "host"
"""The measurement that is missing if no sampler ran beside the training."""
EARLY_END = "end of the training"
"""The measurement that is missing if a job COMPLETED in the middle of its own counter."""


class Severity(IntEnum):
    """How serious a finding is, in ascending order. The cause that ended a run is at least a warning."""

    INFO = 1
    WARNING = 2
    CRITICAL = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Verdict(StrEnum):
    """The one word for a target. *Healthy* is a claim and needs a ground."""

    FINDING = "finding"
    """There is a finding above info."""
    HEALTHY = "healthy"
    TOO_EARLY = "too_early"
    """It has not made enough steps to be judged."""
    UNKNOWN = "unknown"
    """Nothing wrong was seen, and nothing shows that it goes well."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One piece of proof: a number with its time window, or a log line with its file and line number."""

    text: str
    file: str | None = None
    line: int | None = None
    value: float | None = None
    unit: str | None = None

    @classmethod
    def percent(cls, text: str, value: float) -> Evidence:
        """A measured percentage, with one decimal."""
        return cls(text, value=round(value, 1), unit="%")


@dataclass(frozen=True, slots=True)
class Subject:
    """The node, rank and GPU that a finding is about; None where the data do not tell."""

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
    """True if it changes the result of the training. Such a fix is never applied without asking."""
    needs: tuple[str, ...] = ()
    """What the fix presupposes, as `dataloader` or `scheduler:slurm`. It is shown only where the log, the
    script or the run shows all of them (rules/advice/circumstances.py has the list)."""

    @property
    def is_for_primary(self) -> bool:
        """True if it fits only a finding that nothing else explains."""
        return PRIMARY in self.needs


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """A measurement that a rule needed and did not get, why it is missing, and how to get it."""

    what: str
    because: str
    how: str


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of `Rule.check`, yielded as long as its condition holds. The engine turns hits that last
    into findings."""

    summary: str
    evidence: tuple[Evidence, ...]
    confidence: float
    subject: Subject = Subject()
    fixes: tuple[Fix, ...] = ()
    severity: Severity | None = None
    """None: the severity of the rule."""
    cause: str | None = None
    """None: the cause of the rule."""
    since_s: float | None = None
    """When the condition began, in the time of the data; None if the rule does not know."""
    consequence_of: tuple[str, ...] | None = None
    """Codes of rules that explain this hit if they fire on the same target. None: the rule's own list."""
    is_intended: bool = False
    """True for an end that the user asked for: its consequences are then no trouble either."""
    is_hidden: bool = False
    """True for the end of a program in a job that COMPLETED nevertheless: at most a warning, but ordered as
    an error that ended the job."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A hit that lasted, ordered among the target's other findings."""

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
        """How sure the rule is, in one word: "possible", "likely", or "" for a clear finding.

        Not a percentage: `confidence` is an estimate by the rule's author, and each rule has too few labelled
        logs to measure it.
        """
        return "" if self.confidence >= _CLEAR else "likely" if self.confidence >= _LIKELY else "possible"

    @property
    def launch_fixes(self) -> tuple[Fix, ...]:
        """The fixes that change the launch."""
        return tuple(fix for fix in self.fixes if fix.changes)

    def is_meant(self, rule: str | None) -> bool:
        """True for a finding of this rule, in any case; without a rule, for the primary finding."""
        return self.rule == rule.upper() if rule else self.is_primary


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of all rules for one target: findings, primary first, and what could not be judged."""

    target: str
    state: str | None
    findings: tuple[Finding, ...]
    not_measured: tuple[NotMeasured, ...]
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """`RULE.name` → the value used, for every threshold of the rules that ran."""
    health: Verdict = Verdict.UNKNOWN
    """The verdict if no finding is above info."""
    ground: str = ""
    """Why `health` is what it is, as a clause; empty if nothing is known."""
    outcome: Outcome | None = None
    """None in a diagnosis that was read back from a file."""

    @property
    def verdict(self) -> Verdict:
        """The one word for the target, as in the public JSON."""
        if any(finding.severity > Severity.INFO for finding in self.findings):
            return Verdict.FINDING
        is_doubtful = self.silence is not None or self.early_end is not None
        return Verdict.UNKNOWN if is_doubtful else self.health

    @property
    def silence(self) -> NotMeasured | None:
        """How long a running job is silent; None if it is not."""
        return next((item for item in self.not_measured if item.what == PROGRESS), None)

    @property
    def early_end(self) -> NotMeasured | None:
        """The item that says that a job COMPLETED in the middle of its own counter, without a word why."""
        return next((item for item in self.not_measured if item.what == EARLY_END), None)
