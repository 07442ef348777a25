"""Name earlier runs in the same way in each finding."""

from __future__ import annotations

from datetime import UTC, datetime

from coach.model.judging.verdict import PastRun


def when(past: PastRun) -> str:
    """`ended 2026-11-21 14:05 UTC`, not an age: a rule reads no clock."""
    if past.ended_s is None:
        return "still running" if past.state == "RUNNING" else "at a time that is not known"
    return f"ended {datetime.fromtimestamp(past.ended_s, UTC):%Y-%m-%d %H:%M} UTC"
