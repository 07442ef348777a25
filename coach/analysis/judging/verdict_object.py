"""A diagnosis as the public JSON: what `coach check --format json` prints. Pure.

A verdict that is kept is this object, how the target ended, and the ground of its verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.judging.finding import Diagnosis, Finding
from coach.model.judging.outcome import End, Outcome
from coach.runs import encode_number

OUTCOME = "outcome"
"""A kept verdict has this key beside those of the public JSON: how the target ended, and the work lost."""
GROUND = "ground"
"""A kept verdict has this key too: why a target without a finding is healthy, too early to judge, or
unknown."""


def diagnosis_object(diagnosis: Diagnosis) -> dict[str, Any]:
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


def _outcome_object(outcome: Outcome | None) -> dict[str, Any] | None:
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


def _finding_object(finding: Finding) -> dict[str, Any]:
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
