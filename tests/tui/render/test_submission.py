"""A run with an interrupted launch on the screens: Slurm's record of it replaces its state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.model.training.run import Submission
from coach.render.text import plain
from coach.tui.render.run import head_line
from coach.tui.render.runs import RUN_COLUMNS, run_rows
from tests.tui.fake_session import NOW_S, make_run, make_target

STATE = [column.name for column in RUN_COLUMNS].index("state")


@pytest.mark.parametrize(
    ("submission", "listed", "told"),
    [
        (Submission.LAUNCHING, "launching", "launching"),
        (Submission.NOT_QUEUED, "not queued", "not queued"),
        (Submission.NEVER, "not queued", "never submitted"),
    ],
)
def test_the_list_and_the_run_tell_it_from_one_that_waits(
    submission: Submission, listed: str, told: str
) -> None:
    run = replace(make_run(), state="PENDING", job_id=None, submission=submission)
    (row,) = run_rows([run], {}, {}, {}, {}, (), NOW_S)
    assert row.cells[STATE].text == listed
    assert len(listed) <= RUN_COLUMNS[STATE].width
    summary = plain(head_line(run, make_target(run), "PENDING", NOW_S, 150))
    assert told in summary
    assert "PENDING" not in summary


def test_a_run_that_waits_in_the_queue_is_pending() -> None:
    run = replace(make_run(), state="PENDING", submission=None)
    (row,) = run_rows([run], {}, {}, {}, {}, (), NOW_S)
    assert row.cells[STATE].text == "PENDING"
