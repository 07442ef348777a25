"""Read the clock of the file server that holds the runs."""

from __future__ import annotations

from pathlib import Path

from coach.model.judging.doctor_report import Check, CheckState
from coach.sources.machine.disk import why_not_writable
from coach.sources.machine.file_clock import read_skew
from coach.workflows.doctor.here import judge_skew


def look_at_clock(directory: Path, area: str) -> list[Check]:
    """The clock of a file server, by a file in the directory or in the nearest one above it that exists."""
    place = next((path for path in (directory, *directory.parents) if path.is_dir()), directory)
    if why_not_writable(place) is not None:
        because = "nothing can be written there to look at its time"
        return [Check(area, "clock", CheckState.UNKNOWN, None, because, is_needed=False)]
    return [judge_skew(place, read_skew(place))]
