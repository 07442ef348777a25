"""Read, judge and compare two runs."""

from __future__ import annotations

from coach.analysis.comparing.two_runs import Comparison, compare
from coach.analysis.spelling.printable import printable
from coach.config import Settings
from coach.model.errors import UserError
from coach.rules.engine import Engine
from coach.sources.io import Io
from coach.workflows.judging.check import Checker
from coach.workflows.judging.judge import rules_of
from coach.workflows.judging.targets import Target


def compare_targets(before: Target, after: Target, settings: Settings, io: Io, backend: str) -> Comparison:
    """The effect of a change, with the findings of both runs. Raises UserError if one of them cannot be read
    or has no steps."""
    checker = Checker(settings, io, Engine(rules_of(settings)), backend)
    sides = [checker.by_itself(target) for target in (before, after)]
    for snapshot, history, _ in sides:
        if snapshot.run is None and not history.ranks:
            name = printable(snapshot.target)
            raise UserError(
                f"{name}: no loss and no step was found in its logs and metric files",
                f"`coach check {name}` names the files that were read",
            )
    (old, old_history, old_diagnosis), (new, new_history, new_diagnosis) = sides
    return compare(old, old_history, new, new_history, (old_diagnosis, new_diagnosis))
