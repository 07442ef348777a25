"""Say what a diagnosis without a finding means: not checked, too early, silent, unknown, or healthy. Pure.

These are different facts. Every list, screen and command takes its word from this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.judging.finding import EARLY_END, PROGRESS, SAMPLER, Diagnosis, NotMeasured, Verdict
from coach.model.judging.verdict import PastRun

_WAITING = frozenset({"PENDING", "CONFIGURING"})


class Look(StrEnum):
    """The state of one target. The value is the word that coach shows."""

    WENT_WRONG = "went wrong"
    """There is a warning or a critical finding. It says more than this word."""
    NOT_LOOKED_AT = "not checked"
    SILENT = "silent"
    """The job runs, and has written nothing for a long time."""
    TOO_EARLY = "too early"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"


_SIGNS = {
    Look.WENT_WRONG: "✖",
    Look.NOT_LOOKED_AT: "–",
    Look.SILENT: "?",
    Look.TOO_EARLY: "–",
    Look.UNKNOWN: "?",
    Look.HEALTHY: "✓",
}
_LOOKS = {
    Verdict.FINDING: Look.WENT_WRONG,
    Verdict.TOO_EARLY: Look.TOO_EARLY,
    Verdict.UNKNOWN: Look.UNKNOWN,
    Verdict.HEALTHY: Look.HEALTHY,
}


def look_of(diagnosis: Diagnosis | None) -> Look:
    """The word for one target. `diagnosis` is None if it was not judged yet."""
    if diagnosis is None:
        return Look.NOT_LOOKED_AT
    if diagnosis.verdict is not Verdict.FINDING:
        if diagnosis.state in _WAITING:
            return Look.NOT_LOOKED_AT
        if diagnosis.silence is not None:
            return Look.SILENT
    return _LOOKS[diagnosis.verdict]


def look_of_past(past: PastRun | None) -> Look:
    """The word for an ended run that coach remembers."""
    if past is None or not past.is_judged:
        return Look.NOT_LOOKED_AT
    if past.rule is not None:
        return Look.WENT_WRONG
    return Look.HEALTHY if past.has_gone_well else Look.UNKNOWN


def sign_of(look: Look) -> str:
    """One character for the word, so that the meaning never depends on colour alone."""
    return _SIGNS[look]


def meaning_of(diagnosis: Diagnosis | None) -> str:
    """One line: the word and its ground."""
    if diagnosis is None:
        return "not checked yet"
    if diagnosis.state in _WAITING and diagnosis.verdict is not Verdict.FINDING:
        return "not checked: it has not started"
    return verdict_words(diagnosis.verdict, diagnosis.ground, diagnosis.not_measured)


def verdict_words(verdict: str, ground: str, not_measured: Iterable[NotMeasured]) -> str:
    """A verdict without a finding in words, with its ground and what limits it."""
    missing = {item.what: item for item in not_measured}
    if (silence := missing.get(PROGRESS)) is not None:
        return f"silent: {silence.because}"
    if (early_end := missing.get(EARLY_END)) is not None:
        return f"nothing wrong seen, but {early_end.because}"
    if verdict == Verdict.TOO_EARLY:
        return f"too early: {ground or 'it has made too few steps'}"
    if verdict != Verdict.HEALTHY:
        return f"nothing wrong seen, but {ground or 'its loss is not known'}"
    unmeasured = "; its GPUs and CPUs were not measured" if SAMPLER in missing else ""
    return f"healthy: {ground or 'no problem found in the measurements'}{unmeasured}"


def why_no_fix(diagnosis: Diagnosis | None) -> str:
    """The answer to the key for fixes if there is no fix to offer."""
    look = look_of(diagnosis)
    if diagnosis is not None and (withheld := why_withheld(diagnosis)):
        return withheld.because
    if look is Look.NOT_LOOKED_AT:
        return f"{meaning_of(diagnosis)}: no fix is known"
    if look is Look.WENT_WRONG:
        return "no finding here offers a fix"
    return f"{look.value}: no finding, so no fix"
