"""A diagnosis as the public JSON: what `coach check --format json` prints. Pure.

A verdict that is kept is this object, how the target ended, and the ground of its verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypedDict

from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.json_types import Number, Schema1
from coach.model.judging.finding import Diagnosis, Finding, NotMeasured, Subject, Verdict
from coach.model.judging.outcome import End, Outcome
from coach.runs import encode_number

OUTCOME = "outcome"
"""A kept verdict has this key beside those of the public JSON: how the target ended, and the work lost."""
GROUND = "ground"
"""A kept verdict has this key too: why a target without a finding is healthy, too early to judge, or
unknown."""


class EvidenceObject(TypedDict):
    """One piece of evidence: a number with its window, or a log line with its file and line number."""

    text: str
    file: str | None
    line: int | None
    value: Number
    unit: str | None


class FixObject(TypedDict):
    """A typed change of the launch, or a command for a job that coach did not launch."""

    title: str
    changes: dict[str, Any]
    """Keys: recipe batch_size gradient_accumulation lr warmup_steps num_workers precision
    activation_checkpointing, and so on; mem time signal exclude env num_nodes gpus_per_node nproc_per_node
    cpus_per_task."""
    command: str | None
    changes_learning: bool
    """True if it changes the result of the training. Such a fix is never applied without asking."""


class FindingObject(TypedDict):
    """One finding of a rule: a summary, its evidence, and its fixes."""

    rule: str
    """Code of the rule. The meaning of a code never changes."""
    name: str
    cause: str
    """The fault, as one word; `coach explain CAUSE` explains it."""
    severity: Annotated[str, Literal["info", "warning", "critical"]]
    confidence: float
    """From 0 to 1: an estimate of the rule's author."""
    primary: bool
    """True for the one finding that explains the others."""
    consequence_of: str | None
    """Code of the rule whose finding explains this one."""
    subject: Annotated[dict[str, Any], Subject]
    summary: str
    evidence: list[Annotated[dict[str, Any], EvidenceObject]]
    fixes: list[FixObject]


class DiagnosisObject(TypedDict):
    """The diagnosis of one target: its findings, the primary one first."""

    schema: Schema1
    target: str
    """The run, job or path that was named."""
    state: str | None
    """The state in Slurm's word, also for a local run."""
    verdict: Annotated[str, Verdict]
    """*finding*: one above info. *healthy* has a ground: a loss or metric that moves as it should, or an end
    without an error in the log."""
    findings: list[FindingObject]
    """If empty, or only info: no fault is known."""
    not_measured: list[Annotated[dict[str, Any], NotMeasured]]
    """Checks that could not be made. They never count as passed."""


class OutcomeObject(TypedDict):
    """How a target ended, and the work that is lost."""

    end: Annotated[str, End]
    reason: str | None
    """Slurm's state, the exception's type, or the signal's number or exit status as text."""
    exit_code: int | None
    rank: int | None
    """The rank that ended first."""
    node: str | None
    lost_steps: int | None
    """Steps since the last complete checkpoint."""
    lost_s: Number
    can_resume: bool | None
    """True with a complete checkpoint; null if that is not known."""


def diagnosis_object(diagnosis: Diagnosis) -> DiagnosisObject:
    """The public JSON of one target."""
    return {
        "schema": 1,
        "target": diagnosis.target,
        "state": diagnosis.state,
        "verdict": diagnosis.verdict.value,
        "findings": [_finding_object(finding) for finding in diagnosis.findings],
        "not_measured": [asdict(item) for item in diagnosis.not_measured],
    }


def kept_object(diagnosis: Diagnosis, told: Mapping[str, Any]) -> dict[str, Any]:
    """The public JSON of a diagnosis (`told`) with `outcome` and `ground`; for an open drill, `outcome` is
    null."""
    outcome = None if why_withheld(diagnosis) else _outcome_object(diagnosis.outcome)
    return {**told, OUTCOME: outcome, GROUND: diagnosis.ground}


def public_object(kept: Mapping[str, Any]) -> dict[str, Any]:
    """The public JSON of a kept verdict."""
    return {key: value for key, value in kept.items() if key not in (OUTCOME, GROUND)}


def _outcome_object(outcome: Outcome | None) -> OutcomeObject | None:
    """The end of the target; None while it runs, or if nothing is known."""
    if outcome is None or outcome.end in (End.RUNNING, End.UNKNOWN):
        return None
    first = outcome.first
    return {
        "end": outcome.end.value,
        "reason": outcome.reason,
        "exit_code": outcome.exit_code,
        "rank": None if first is None else first.rank,
        "node": None if first is None else first.node,
        "lost_steps": outcome.lost_steps,
        "lost_s": _json_number(outcome.lost_s),
        "can_resume": outcome.can_resume,
    }


def _finding_object(finding: Finding) -> FindingObject:
    return {
        "rule": finding.rule,
        "name": finding.name,
        "cause": finding.cause,
        "severity": finding.severity.word,
        "confidence": round(finding.confidence, 2),
        "primary": finding.is_primary,
        "consequence_of": finding.consequence_of,
        "subject": asdict(finding.subject),
        "summary": finding.summary,
        "evidence": [{**asdict(item), "value": _json_number(item.value)} for item in finding.evidence],
        "fixes": [
            {
                "title": fix.title,
                "changes": dict(fix.changes),
                "command": fix.command,
                "changes_learning": fix.changes_learning,
            }
            for fix in finding.fixes
        ],
    }


def _json_number(value: float | None) -> float | str | None:
    encoded: float | str | None = encode_number(value)
    return encoded
