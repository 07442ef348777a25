from __future__ import annotations

import pytest

from coach.analysis.explaining.words import Explained
from coach.render.text import line_width, plain
from coach.tui.render.explained import explain_cells, explained_lines
from coach.tui.render.explained_job import explain_job_page
from coach.tui.render.queue import JOB_COLUMNS, Queue, job_rows
from coach.tui.render.table import Cell, Column
from tests.tui.fake_session import NOW_S, make_history, make_job, make_run, status


def test_cells_that_ask_for_an_action_come_first_and_empty_cells_are_left_out() -> None:
    cells = [
        (Column("name", "NAME", 9), Cell("ddp")),
        (Column("account", "ACCOUNT", 9), Cell("")),
        (Column("state", "STATE", 9), Cell("TIMEOUT")),
    ]
    told = explain_cells("queue", cells)
    assert [each.name for each in told] == ["STATE", "NAME"]


def test_a_waiting_job_explains_its_reason_and_the_remedy() -> None:
    job = make_job("13", state="PENDING", reason="QOSMaxJobsPerUserLimit", nodes=None)
    row = job_rows(Queue((job,), ("13",)), None, NOW_S).row(0)
    told = explain_cells("queue", [*zip(JOB_COLUMNS, row.cells, strict=True)], job)
    (reason,) = (each for each in told if each.name == "REASON")
    assert reason.value == "QOSMaxJobsPerUserLimit"
    assert "running jobs" in reason.what
    assert "it starts when running ones end" in reason.to_do


def test_the_verdict_of_a_running_job_is_told_as_coachs_own() -> None:
    job = make_job("13")
    verdict = Cell("✓ healthy", "good")
    row = job_rows(Queue((job,), ("13",)), None, NOW_S, lambda _: (None, verdict)).row(0)
    told = explain_cells("queue", [*zip(JOB_COLUMNS, row.cells, strict=True)], job)
    (value,) = (each for each in told if each.value == verdict.text)
    assert value.origin.startswith("coach's rules")


def test_the_limit_of_an_ended_job_leads_to_no_action() -> None:
    for state, is_offered in (("RUNNING", True), ("COMPLETED", False)):
        job = make_job("13", state=state)
        row = job_rows(Queue((job,), ("13",)), None, NOW_S).row(0)
        told = explain_cells("queue", [*zip(JOB_COLUMNS, row.cells, strict=True)], job)
        (left,) = (each for each in told if each.name == "LEFT/START")
        assert ("T lowers the limit" in left.to_do) is is_offered


def test_a_job_explains_its_training_by_its_metrics_with_their_age() -> None:
    told = {each.name: each for each in explain_job_page(None, make_run(), make_history(), NOW_S)}
    assert "metrics/rank-*.jsonl" in told["LOSS"].origin
    assert told["LOSS"].time_s is not None


@pytest.mark.parametrize("width", [78, 118, 198])
def test_an_explanation_fits_and_shows_its_age(width: int) -> None:
    told = Explained("STATE", "RUNNING", "it runs " * 20, "squeue, field State", "look " * 30, "jobs")
    sources = {"jobs": status("jobs", 3.0)}
    rows = explained_lines([told], None, sources, NOW_S, width)
    text = "\n".join(plain(row) for row in rows)
    assert "squeue, field State · 3 s old" in text
    assert text.count("look") == 30
    assert max(line_width(row) for row in rows) <= width
