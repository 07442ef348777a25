"""Put the ticket of a run into the shared directory of a course, where the instructor can read it."""

from __future__ import annotations

from pathlib import Path

from coach.analysis.jobs.named_run import run_or_job
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.training.run import Run
from coach.node import share
from coach.sources.io import Io
from coach.workflows.judging.targets import known_runs
from coach.workflows.teaching.cohort import shared_place


def run_to_share(named: str, settings: Settings, io: Io) -> tuple[Path, Run]:
    """The shared directory, and the run whose ticket goes there. Raises UserError if one of them is missing,
    and for a drill."""
    directory = shared_place(settings)
    known = known_runs(settings, io)
    run = run_or_job(named, known)
    if run is None:
        raise UserError(
            f"{named}: not a run of coach, so the board has no row for it", "--save FILE saves it"
        )
    if run.drill is not None:
        raise UserError(f"{named}: a drill: others have still to find its fault", "--save FILE saves it")
    return directory, run


def share_ticket(directory: Path, run: Run, text: str) -> str:
    """Write the file, and return its path. Raises UserError."""
    try:
        return share.share_ticket(str(directory), run.run_id, text.encode("utf-8", "replace"))
    except OSError as error:
        raise UserError(f"{directory}: {error.strerror or error}", "--save FILE saves it elsewhere") from None
