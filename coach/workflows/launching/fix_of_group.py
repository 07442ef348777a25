"""Find the run of a group, or the task of an array, that `coach fix` means.

A person names the group that the queue shows, and most of its runs may be healthy. A fix is for one run: the
first one with a finding that has a fix.
"""

from __future__ import annotations

from collections.abc import Iterator

from coach.analysis.comparing.sweep_table import group_of
from coach.analysis.queueing.arrays import parse_task_ids
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.judging.finding import Diagnosis
from coach.sources.io import Io
from coach.workflows.judging.check import Checked, Checker
from coach.workflows.judging.targets import known_runs


def first_with_fix(
    name: str, rule: str | None, checker: Checker, settings: Settings, io: Io
) -> tuple[Checked, str]:
    """The named run or job, judged, and its name. Of an array or a group it is the first one with a fix; if a
    group has none, the named run. Raises UserError if the name cannot be read, and for an array without any
    fix."""
    checked = checker.target(name)
    run = checked.snapshot.run
    if checked.parts:
        names = [part.diagnosis.target for part in checked.parts if _has_fix(part.diagnosis, rule)]
        if not names:
            raise UserError(
                f"{name}: none of its tasks has a finding with a fix that changes the launch",
                f"coach check {name} says what to do",
            )
        first = min(names, key=_task_of)
        return checker.target(first), first
    is_group = run is not None and run.sweep is not None and run.sweep.group_id == run.run_id
    if run is None or not is_group or _has_fix(checked.diagnosis, rule):
        return checked, name
    known = known_runs(settings, io)
    others = (each.run_id for each in group_of(run.run_id, known) if each.run_id != run.run_id)
    return next(_with_fix(others, rule, checker), (checked, name))


def _with_fix(names: Iterator[str], rule: str | None, checker: Checker) -> Iterator[tuple[Checked, str]]:
    """The judged runs that have a fix, with their names. Each is read when it is asked for."""
    for name in names:
        checked = checker.target(name)
        if _has_fix(checked.diagnosis, rule):
            yield checked, name


def _has_fix(diagnosis: Diagnosis, rule: str | None) -> bool:
    return any(finding.launch_fixes for finding in diagnosis.findings if finding.is_meant(rule))


def _task_of(job_id: str) -> tuple[int, str]:
    ids = parse_task_ids(job_id)
    return (ids.tasks[0] if ids is not None and ids.tasks else -1), job_id
