"""Say what a diagnosis without a finding means: not checked, silent, nothing known, or healthy. Pure.

These are different facts. Every list, screen and command takes its word from this module.
"""

from __future__ import annotations

from enum import StrEnum

from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.judging.finding import Diagnosis, Severity
from coach.model.judging.verdict import PastRun
from coach.model.slurm.cluster import is_final

_WAITING = frozenset({"PENDING", "CONFIGURING"})


class Look(StrEnum):
    """The state of one target. The value is the word that coach shows."""

    WENT_WRONG = "went wrong"
    """There is a warning or a critical finding. It says more than this word."""
    NOT_LOOKED_AT = "not checked"
    SILENT = "silent"
    """The job runs, and has written nothing for a long time."""
    NOTHING_KNOWN = "nothing known"
    HEALTHY = "healthy"


_SIGNS = {
    Look.WENT_WRONG: "✖",
    Look.NOT_LOOKED_AT: "–",
    Look.SILENT: "?",
    Look.NOTHING_KNOWN: "?",
    Look.HEALTHY: "✓",
}
_MEANINGS = {
    Look.WENT_WRONG: "went wrong",
    Look.NOT_LOOKED_AT: "not checked yet",
    Look.SILENT: "silent for long: coach cannot tell whether it works",
    Look.NOTHING_KNOWN: "nothing known: too few measurements to call it healthy",
    Look.HEALTHY: "healthy: no problem found in the measurements",
}


def look_of(diagnosis: Diagnosis | None) -> Look:
    """The word for one target. `diagnosis` is None if it was not judged yet."""
    if diagnosis is None:
        return Look.NOT_LOOKED_AT
    if any(finding.severity > Severity.INFO for finding in diagnosis.findings):
        return Look.WENT_WRONG
    if diagnosis.state in _WAITING:
        return Look.NOT_LOOKED_AT
    if diagnosis.silence is not None:
        return Look.SILENT
    return Look.HEALTHY if diagnosis.has_gone_well else Look.NOTHING_KNOWN


def look_of_past(past: PastRun | None) -> Look:
    """The word for an ended run that coach remembers."""
    if past is None or not past.is_judged:
        return Look.NOT_LOOKED_AT
    if past.rule is not None:
        return Look.WENT_WRONG
    return Look.HEALTHY if past.has_gone_well else Look.NOTHING_KNOWN


def sign_of(look: Look) -> str:
    """One character for the word, so that the meaning never depends on colour alone."""
    return _SIGNS[look]


def meaning_of(diagnosis: Diagnosis | None) -> str:
    """One line: the word and its meaning."""
    look = look_of(diagnosis)
    said = _said_of(look, diagnosis) if diagnosis is not None else None
    return said or _MEANINGS[look]


def _said_of(look: Look, diagnosis: Diagnosis) -> str | None:
    """The meaning of the word for this target; None if the word always means the same."""
    if look is Look.NOT_LOOKED_AT:
        return "not checked: it has not started"
    if look is Look.SILENT and diagnosis.silence is not None:
        return f"silent: {diagnosis.silence.because}"
    if look is Look.NOTHING_KNOWN:
        return _unknown(diagnosis.state)
    return _healthy(diagnosis) if look is Look.HEALTHY else None


def _unknown(state: str | None) -> str | None:
    if state == "COMPLETED":
        return "nothing known: it COMPLETED, but coach read no loss of it"
    return f"nothing known: no finding in a job that ended as {state}" if is_final(state) else None


def _healthy(diagnosis: Diagnosis) -> str | None:
    if diagnosis.early_end is not None:
        return f"no problem found in the measurements, but {diagnosis.early_end.because}"
    if diagnosis.has_no_sampler:
        return "healthy by its log and metrics; its GPUs and CPUs were not measured"
    return None


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
