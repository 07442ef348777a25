"""Read, judge and compare two runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coach.analysis.comparing.found_in import found_in
from coach.analysis.comparing.two_runs import Comparison, compare
from coach.analysis.spelling.printable import printable
from coach.config import Settings
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis
from coach.model.snapshot import TargetSnapshot
from coach.sources.io import Io
from coach.workflows.judging.lazy_engine import LazyEngine
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import Target


@dataclass(frozen=True, slots=True)
class Judged:
    """A target, read once and judged. The diagnosis of an open drill is withheld."""

    snapshot: TargetSnapshot
    history: History
    diagnosis: Diagnosis


def read_judged(
    target: Target, settings: Settings, io: Io, backend: str, user: str, engine: LazyEngine
) -> Judged:
    """Raises UserError if the target cannot be read."""
    snapshot, history = read_once(target, settings, io, backend, user, engine.signatures())
    return Judged(snapshot, history, engine.diagnose(snapshot, history))


def compare_targets(
    before: Target, after: Target, settings: Settings, io: Io, backend: str, user: str
) -> Comparison:
    """The effect of a change, with the findings of both runs. Raises UserError if one of them cannot be read
    or has no steps."""
    engine = LazyEngine(settings)
    sides = [read_judged(target, settings, io, backend, user, engine) for target in (before, after)]
    for side in sides:
        if side.snapshot.run is None and not side.history.ranks:
            name = printable(side.snapshot.target)
            raise UserError(
                f"{name}: no loss and no step was found in its logs and metric files",
                f"`coach check {name}` names the files that were read",
            )
    return _compared(*sides)


def _compared(before: Judged, after: Judged) -> Comparison:
    made = compare(before.snapshot, before.history, after.snapshot, after.history)
    return replace(made, findings=found_in(before.diagnosis, after.diagnosis))
