"""A run of another login node on the screens: its place and its last known state, never a verdict."""

from __future__ import annotations

from dataclasses import replace

from coach.render.text import plain
from coach.tui.render.job import job_lines
from coach.tui.render.queue import JOB_COLUMNS, job_rows, queue_of
from coach.tui.render.run import head_line
from coach.tui.render.runs import RUN_COLUMNS, run_rows
from coach.tui.render.table import Column, Row
from tests.tui.fake_session import NOW_S, make_job, make_run, make_target

HIDDEN = {"host": "login2", "is_visible": False, "last_word_time_s": NOW_S - 180.0}


def cell(row: Row, columns: tuple[Column, ...], name: str) -> str:
    return row.cells[[column.name for column in columns].index(name)].text


def test_the_queue_shows_where_it_is_and_the_last_word_with_its_age() -> None:
    job = replace(make_job(), state="RUNNING", **HIDDEN)
    row = job_rows(queue_of([job], job.user, tuple), job.user, NOW_S).row(0)
    assert cell(row, JOB_COLUMNS, "state") == "on login2"
    assert cell(row, JOB_COLUMNS, "reason") == "RUNNING 3 min ago, not visible from here"
    shown = "\n".join(map(plain, job_lines(job, NOW_S)))
    assert "on login2" in shown
    assert "RUNNING 3 min ago, not visible from here" in shown


def test_the_list_of_runs_and_the_run_say_the_same_and_no_more() -> None:
    run = replace(make_run(), state="RUNNING", **HIDDEN)
    (row,) = run_rows([run], {}, {}, {}, {}, (), NOW_S)
    assert cell(row, RUN_COLUMNS, "state") == "on login2"
    summary = plain(head_line(run, make_target(run), "RUNNING", NOW_S, 150))
    assert "on login2, not visible from here: RUNNING 3 min ago" in summary


def test_its_end_is_a_state_as_any_other() -> None:
    run = replace(make_run(), state="COMPLETED", **HIDDEN)
    (row,) = run_rows([run], {}, {}, {}, {}, (), NOW_S)
    assert cell(row, RUN_COLUMNS, "state") == "COMPLETED"
