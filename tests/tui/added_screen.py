"""A new screen as a contributor adds it: one file with its renderer. The line that declares it is in
tests/tui/test_screen_specs.py."""

from __future__ import annotations

from coach.model.snapshot import Snapshot
from coach.render.text import Line, line
from coach.tui.bases.page import PageScreen


def tide_lines(snapshot: Snapshot) -> list[Line]:
    """How many jobs wait, and how many nodes there are."""
    waiting = sum(job.state == "PENDING" for job in snapshot.jobs)
    return [line(f" {waiting} jobs wait before {len(snapshot.nodes)} nodes")]


class TideScreen(PageScreen, screen="tide"):
    """One line."""

    def lines(self, width: int) -> list[Line]:
        return tide_lines(self.context.snapshot)
