"""What is told of a drill's run before the learner has answered: nothing but that. Pure.

After the rules, not among them: the engine judges a drill's run like any other, and never learns that it is
one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from coach.model.judging.finding import Diagnosis, NotMeasured
from coach.model.training.run import Run

_WHAT = "diagnosis"
ANSWER_FIRST = "drill: answer first"


def as_told(diagnosis: Diagnosis, run: Run | None, drills: Collection[str]) -> Diagnosis:
    """The diagnosis as anybody may see it. A run of a drill that nobody knows (`drills` are the known ones'
    names) is a run like any other."""
    if run is None or not run.is_open_drill or run.drill not in drills:
        return diagnosis
    how = f"coach drill {run.run_id} --answer CAUSE; --give-up shows it"
    return replace(
        diagnosis,
        findings=(),
        not_measured=(NotMeasured(_WHAT, ANSWER_FIRST, how),),
        thresholds={},
        has_gone_well=False,
    )


def why_withheld(diagnosis: Diagnosis) -> NotMeasured | None:
    """How a diagnosis that is held back is got; None where it is told."""
    return next((each for each in diagnosis.not_measured if each.because == ANSWER_FIRST), None)
