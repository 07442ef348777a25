"""What is told of a drill's run before the learner has answered: nothing but that. Pure.

After the rules, not among them: the engine judges a drill's run like any other, and never learns that it is one.
"""

from __future__ import annotations

from dataclasses import replace

from coach.model.finding import Diagnosis, NotMeasured
from coach.model.run import Run

_WHAT = "diagnosis"
ANSWER_FIRST = "drill: answer first"


def as_told(diagnosis: Diagnosis, run: Run | None) -> Diagnosis:
    """The diagnosis as anybody may see it."""
    if run is None or not run.is_open_drill:
        return diagnosis
    how = f"coach drill {run.run_id} --answer CAUSE; --give-up shows it"
    return replace(
        diagnosis, findings=(), not_measured=(NotMeasured(_WHAT, ANSWER_FIRST, how),), thresholds={}
    )


def why_withheld(diagnosis: Diagnosis) -> NotMeasured | None:
    """How a diagnosis that is held back is got; None where it is told."""
    return next((each for each in diagnosis.not_measured if each.because == ANSWER_FIRST), None)
