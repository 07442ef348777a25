"""The rows of the queue that a job page shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from coach.tui.context import Context
from coach.tui.job_subject import rows_named
from tests.analysis.made_jobs import job


def test_a_cancelled_array_is_opened_with_its_tasks_and_those_that_never_started() -> None:
    jobs = [job("17", "CANCELLED"), job("17_0", "CANCELLED"), job("17_1", "COMPLETED"), job("18")]
    snapshot = SimpleNamespace(jobs=jobs, targets={})
    context = SimpleNamespace(snapshot=snapshot, run=lambda name: None, run_of_job=lambda name: None)
    shown = rows_named(cast("Context", context), "17", None)
    assert shown is not None
    assert [part.job_id for part in shown.parts] == ["17", "17_0", "17_1"]
