"""Read a cohort for the command and the screen: what was shared, by whom, and who is missing."""

from __future__ import annotations

from pathlib import Path

from coach.analysis.teaching.cohort_standing import people_of
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.launching.launch import NOWHERE
from coach.model.teaching.cohort import Cohort
from coach.sources.runs.cohort_directory import expected_names, read_shared, uid_of, user_of


def read_cohort(
    settings: Settings, directory: Path | None = None, roster: Path | None = None, group: str | None = None
) -> Cohort:
    """Arguments that are left out come from the config. Raises UserError if there is nothing to read."""
    shared = directory or shared_place(settings)
    if roster is None and group is None:
        roster, group = settings.roster, settings.cohort_group
    names = expected_names(roster, group)
    has_names = roster is not None or group is not None
    found = read_shared(shared)
    users = {uid: user_of(uid) for uid in {summary.uid for summary in found.summaries}}
    expected = {name: uid_of(name) for name in names} if has_names else None
    people = people_of(found.summaries, users, expected)
    left_out = {None if uid is None else user_of(uid): count for uid, count in found.left_out.items()}
    return Cohort(str(shared), people, found.problems, left_out, found.tickets)


def shared_place(settings: Settings) -> Path:
    """The directory of the config. Raises UserError if it names none."""
    if settings.launch.share in (None, NOWHERE):
        raise UserError(
            "no shared directory is known",
            "name one: coach cohort DIR; or set share in [launch], for the runs and for this",
        )
    return Path(str(settings.launch.share))
