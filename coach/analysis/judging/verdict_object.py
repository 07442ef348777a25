"""A diagnosis as the public JSON: what `coach check --format json` prints. Pure.

A verdict that is kept is this object, how the target ended, and the ground of its verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from coach.analysis.judging.waiting import PENDING
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.judging.finding import (
    Diagnosis,
    Evidence,
    Finding,
    Fix,
    NotMeasured,
    Severity,
    Subject,
    Verdict,
)
from coach.model.judging.outcome import End, Outcome, RankEnd
from coach.model.judging.verdict import PastRun
from coach.model.slurm.cluster import is_final
from coach.runs import decode_number, encode_number

OUTCOME = "outcome"
"""A kept verdict has this key beside those of the public JSON: how the target ended, and the work lost."""
GROUND = "ground"
"""A kept verdict has this key too: why a target without a finding is healthy, too early to judge, or
unknown."""

_GOOD = frozenset({"COMPLETED", "CANCELLED", "REVOKED"})
_HEALTH = frozenset(Verdict) - {Verdict.FINDING}
_SEVERITIES = {severity.word: severity for severity in Severity}


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


def diagnosis_of(verdict: Mapping[str, Any]) -> Diagnosis:
    """A verdict that was read from a file, which anybody may have written: a missing value, or one of another
    type, is left out."""
    word = _text(verdict, "verdict")
    missing = _tables(verdict, "not_measured")
    return Diagnosis(
        _text(verdict, "target") or "–",
        _text(verdict, "state"),
        tuple(map(finding_of, _tables(verdict, "findings"))),
        tuple(
            NotMeasured(*(_text(item, key) or "" for key in ("what", "because", "how"))) for item in missing
        ),
        health=Verdict(word) if word in _HEALTH else Verdict.UNKNOWN,
        ground=_text(verdict, GROUND) or "",
        outcome=_outcome(verdict),
    )


def finding_of(table: Mapping[str, Any]) -> Finding:
    """A finding of such a verdict."""
    subject = _table(table, "subject")
    return Finding(
        rule=_text(table, "rule") or "",
        name=_text(table, "name") or "",
        cause=_text(table, "cause") or "",
        severity=_SEVERITIES.get(_text(table, "severity") or "", Severity.INFO),
        confidence=decode_number(table.get("confidence")) or 1.0,
        is_primary=table.get("primary") is True,
        consequence_of=_text(table, "consequence_of"),
        subject=Subject(_text(subject, "node"), _whole(subject, "rank"), _whole(subject, "gpu")),
        summary=_text(table, "summary") or "",
        evidence=tuple(
            Evidence(
                _text(item, "text") or "",
                _text(item, "file"),
                _whole(item, "line"),
                decode_number(item.get("value")),
                _text(item, "unit"),
            )
            for item in _tables(table, "evidence")
        ),
        fixes=tuple(
            Fix(
                _text(fix, "title") or "",
                _table(fix, "changes"),
                _text(fix, "command"),
                fix.get("changes_learning") is True,
            )
            for fix in _tables(table, "fixes")
        ),
        since_s=None,
    )


def is_bad_state(state: str | None) -> bool:
    """True if a job ended in this state and nobody asked for it."""
    return is_final(state) and state not in _GOOD


def has_ended_badly(past: PastRun) -> bool:
    """True for a bad final state, and for a run that completed with a finding above info."""
    return is_final(past.state) and (is_bad_state(past.state) or past.rule is not None)


def worst_severity(verdict: Mapping[str, Any]) -> Severity | None:
    """The severity of its worst finding; None without a finding."""
    return max((finding.severity for finding in diagnosis_of(verdict).findings), default=None)


def has_gone_wrong(diagnosis: Diagnosis) -> bool:
    """True with a finding above info, and for an open drill that ended in a bad state."""
    is_hidden = why_withheld(diagnosis) is not None
    return diagnosis.verdict is Verdict.FINDING or (is_hidden and is_bad_state(diagnosis.state))


def is_withheld(verdict: Mapping[str, Any]) -> bool:
    """True for an open drill: its verdict names no cause."""
    return why_withheld(diagnosis_of(verdict)) is not None


def pending_of(verdict: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Why a job waits. None for a job that has ended: its verdict may come from a file, and only a file has
    both."""
    waiting = verdict.get(PENDING)
    return waiting if isinstance(waiting, dict) and not is_final(_text(verdict, "state")) else None


def _outcome(verdict: Mapping[str, Any]) -> Outcome | None:
    told = _table(verdict, OUTCOME)
    try:
        end = End(str(told.get("end")))
    except ValueError:
        return None
    rank, node = _whole(told, "rank"), _text(told, "node")
    can_resume = told.get("can_resume")
    return Outcome(
        end,
        _text(told, "reason"),
        exit_code=_whole(told, "exit_code"),
        first=RankEnd(rank, node, None) if rank is not None else None,
        lost_steps=_whole(told, "lost_steps"),
        can_resume=can_resume if isinstance(can_resume, bool) else None,
    )


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _tables(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    listed = value.get(key)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _text(value: Mapping[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) and found else None


def _whole(value: Mapping[str, Any], key: str) -> int | None:
    found = value.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
