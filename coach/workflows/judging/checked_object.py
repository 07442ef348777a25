"""Turn a judged target into the public JSON, and into the verdict to keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coach.analysis.comparing.time_to_target import time_to_target
from coach.analysis.judging.verdict_object import diagnosis_object, kept_object
from coach.analysis.judging.waiting import PENDING
from coach.config import Settings
from coach.model.judging.finding import Diagnosis
from coach.node.secret_words import mask_values
from coach.rules.engine import Engine
from coach.sources.io import Io
from coach.workflows.judging.check import Checked, Checker
from coach.workflows.judging.judge import rules_of


def checked_object(checked: Checked) -> dict[str, Any]:
    """The public JSON of a judged target. A whole array also has its tasks, as `jobs`."""
    found: dict[str, Any] = {**diagnosis_object(checked.diagnosis)}
    if checked.files is not None:
        found |= asdict(checked.files)
    run = checked.snapshot.run
    if run is not None and run.segments:
        found["segments"] = [asdict(segment) for segment in run.segments]
    target = time_to_target(checked.snapshot)
    if target is not None:
        found["time_to_target"] = asdict(target)
    if checked.waiting is not None:
        found[PENDING] = dict(checked.waiting)
    if checked.parts:
        found["jobs"] = [diagnosis_object(part.diagnosis) for part in checked.parts]
    return found


def jobs_object(diagnoses: Iterable[Diagnosis]) -> dict[str, Any]:
    """The public JSON of several jobs."""
    return {"schema": 1, "jobs": [diagnosis_object(each) for each in diagnoses]}


def judged(
    named: str | Path, settings: Settings, io: Io, backend: str | None, ended_as: str | None = None
) -> tuple[Mapping[str, Any], Checked]:
    """The verdict to keep of a named target, or of a run (a Path) that has just ended, which is read by its
    files alone; and all that was read for it. Secrets in the quoted lines are struck. `ended_as`: the state
    of a job whose epilog runs. Raises UserError."""
    checker = Checker(settings, io, Engine(rules_of(settings)), backend, ended_as)
    checked = checker.ended_run(named) if isinstance(named, Path) else checker.target(named)
    return mask_values(kept_object(checked.diagnosis, checked_object(checked))), checked
