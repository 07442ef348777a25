"""Shows a ticket that a person wants to share with a course, asks, and puts it into the shared directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coach.cli.acting import is_confirmed
from coach.cli.text import print_line, say
from coach.config import Settings
from coach.model.training.run import Run
from coach.sources.io import Io
from coach.workflows.teaching.shared_ticket import run_to_share, share_ticket


@dataclass(frozen=True, slots=True)
class Place:
    """The shared directory, and the run whose ticket goes there."""

    directory: Path
    run: Run


def place_of(named: str, settings: Settings, io: Io) -> Place:
    """Raises UserError if the ticket of this run cannot be shared."""
    return Place(*run_to_share(named, settings, io))


def share_shown(
    place: Place, text: str, shown: Sequence[str], notes: Sequence[str], *, is_known: bool
) -> int:
    """Exit status: 0 shared, 1 not confirmed. Raises UserError if the file cannot be written."""
    for line in shown:
        print_line(line)
    question = f"share it with everybody who can read {place.directory}"
    if not is_confirmed(question, is_known, notes):
        say("nothing was shared")
        return 1
    say(f"shared {share_ticket(place.directory, place.run, text)}")
    return 0
