"""Warn of interrupted launches of a recipe before it is launched again, however far they came.

A launch that was killed leaves a directory without a record, a run without a supervisor, or a run without a
job id.
"""

from __future__ import annotations

from coach import runs
from coach.config import Settings
from coach.model.slurm.cluster import LAUNCH_INTERRUPTED
from coach.sources.io import Io
from coach.sources.runs.local_process import look
from coach.workflows.jobs.leftovers import is_unrecorded
from coach.workflows.jobs.lost_submits import TOLD_FOR_S, lines_for_launch, names_of_recipe

_BEING_PREPARED_S = 30.0
"""A younger run directory without a record may be one that another coach is writing, in seconds."""


def lines_of_earlier(recipe: str, backend: str, settings: Settings, io: Io, user: str) -> tuple[str, ...]:
    """One line for each interrupted launch. Raises UserError if Slurm has to be asked and does not answer."""
    lost = lines_for_launch(recipe, settings, io, user) if backend == "slurm" else ()
    return (*lost, *lines_of_unsubmitted(recipe, settings, io))


def lines_of_unsubmitted(recipe: str, settings: Settings, io: Io) -> tuple[str, ...]:
    """Launches of a recipe within the last day that ended before anything was submitted or started.

    Reads files only.
    """
    now_s = io.now()
    lines = []
    for name in names_of_recipe(recipe, settings, io, now_s - TOLD_FOR_S):
        run_dir = settings.runs_root / name
        try:
            value = runs.read_json(runs.RunPaths(run_dir).run_json)
            if value.get("backend") == "local" and look(value).reason == LAUNCH_INTERRUPTED:
                lines.append(f"a launch of this recipe was interrupted before it started anything: {name}")
        except runs.RunFileError:
            if is_unrecorded(run_dir):
                is_young = now_s - io.modified_s(run_dir) < _BEING_PREPARED_S
                words = "is being prepared, or was interrupted" if is_young else "was interrupted"
                lines.append(f"a launch of this recipe {words} before anything was submitted: {name}")
    return tuple(lines)
