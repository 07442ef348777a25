"""Check what a course needs: the folder in which its runs share summaries, and the names of its people."""

from __future__ import annotations

from pathlib import Path

from coach.config import Settings
from coach.model.errors import UserError
from coach.model.judging.doctor_report import OK, WARNING, WRONG, Check
from coach.model.launching.launch import NOWHERE
from coach.sources.runs.cohort_directory import expected_names
from coach.workflows.doctor.probes import Probe
from coach.workflows.sharing import why_not_shared


def course_probes(settings: Settings, area: str) -> dict[tuple[str, str], Probe]:
    """A probe for each part that the config names."""
    probes: dict[tuple[str, str], Probe] = {}
    if settings.launch.share not in (None, NOWHERE):
        probes[area, "shared folder"] = lambda: [judge_share(area, str(settings.launch.share))]
    if settings.roster is not None or settings.cohort_group is not None:
        probes[area, "roster"] = lambda: [judge_roster(area, settings)]
    return probes


def judge_share(area: str, directory: str) -> Check:
    """The folder in which the runs of a course share their summaries."""
    problem = why_not_shared(Path(directory))
    if problem is None:
        return Check(area, "shared folder", OK, directory, is_needed=False)
    todo = "its owner can correct it: mkdir -m 1777, or chmod 1777; else correct launch.share"
    return Check(area, "shared folder", WRONG, directory, problem, todo, is_needed=False)


def judge_roster(area: str, settings: Settings) -> Check:
    """The names of the people whom the board expects."""
    source = str(settings.roster or f"group {settings.cohort_group}")
    try:
        names = expected_names(settings.roster, settings.cohort_group)
    except UserError as error:
        todo = f"{error.hint or 'correct it'}; cohort.roster or cohort.group names it"
        return Check(area, "roster", WARNING, source, error.message, todo, is_needed=False)
    count = f"{source}: {len(names)} {'name' if len(names) == 1 else 'names'}"
    return Check(area, "roster", OK, count, is_needed=False)
