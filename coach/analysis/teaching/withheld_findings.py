"""Withhold the diagnosis of a drill's run until the learner has answered. Pure.

This is applied after the rules: the engine judges a drill's run like any other, and is never told that it is
one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from coach.model.judging.finding import Diagnosis, NotMeasured, Verdict
from coach.model.training.run import Run

_WHAT = "diagnosis"
ANSWER_FIRST = "drill: answer first"


def as_told(diagnosis: Diagnosis, run: Run | None, drills: Collection[str]) -> Diagnosis:
    """The diagnosis that may be shown. `drills` are the names of known drills; a run of an unknown drill is
    treated like any other run."""
    if run is None or not run.is_open_drill or run.drill not in drills:
        return diagnosis
    how = f"coach drill {run.run_id} --answer CAUSE; --give-up shows it"
    return replace(
        diagnosis,
        findings=(),
        not_measured=(NotMeasured(_WHAT, ANSWER_FIRST, how),),
        thresholds={},
        health=Verdict.UNKNOWN,
        ground="",
    )


def why_withheld(diagnosis: Diagnosis) -> NotMeasured | None:
    """How to get a diagnosis that is withheld; None if it is shown."""
    return next((each for each in diagnosis.not_measured if each.because == ANSWER_FIRST), None)
