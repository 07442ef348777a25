"""The course of a job as charts: its loss, its throughput and its GPUs above one axis, and the wait of a step
for data."""

from __future__ import annotations

from coach.render.text import Line
from coach.tui.job_subject import JobSubject
from coach.tui.render import run as runs
from coach.tui.render.course import CourseView, axis_of, course_lines, notes_of

MIN_HEIGHT = 9
"""The least number of lines of a job's charts, however long its page is."""


def course_rows(page: JobSubject, width: int, height: int) -> list[Line]:
    """Where its training stands, and its charts above one axis with its events; empty if nothing was
    measured."""
    run, history, followed = page.run, page.history, page.followed
    started_s = run.started_time_s if run is not None else None
    axis = axis_of(history, started_s, page.now_s, is_live=page.is_live)
    if axis is None:
        return []
    kept = followed.checkpoints if followed is not None else ()
    events = followed.events if followed is not None else ()
    notes = notes_of(
        events,
        [(each.time_s, each.step) for each in kept],
        page.diagnosis,
        axis,
    )
    tokens = run.tokens_per_sample if run is not None else None
    view = CourseView(page.is_log, page.first_chart, tokens)
    progress = page.progress
    pace = progress.pace if progress is not None else None
    paced = runs.pace_lines(history.curve, pace, width) if history.curve else []
    room = max(MIN_HEIGHT, height - len(paced))
    key = page.label("quantity")
    return [*paced, *course_lines(history, axis, notes, width, room, view, key, events)]
