"""The row of a sweep: what all its tasks know together, in the room of one row."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from coach.lookback.glance import DeviceUse, Glance
from coach.lookback.history import CurvePoint
from coach.model.judging.finding import Severity
from coach.render.text import plain
from coach.tui.array_tasks import ArraySoFar, Task, array_so_far
from coach.tui.render.queue import JOB_COLUMNS, job_rows, queue_of, training_columns
from coach.tui.render.table import fit_columns, row_line
from coach.tui.training import Training
from tests.tui.fake_session import NOW_S, make_job, nan_diagnosis

LAYOUT = fit_columns(JOB_COLUMNS, 80, training_columns(80, are_all_shown=False))
NAN = nan_diagnosis().findings[0]


def training(loss: float, use_pct: float = 60.0) -> Training:
    curve = (CurvePoint(1, 1, None, 3.0, 100.0, 0.01, 0.1), CurvePoint(2, 1, None, loss, 100.0, 0.01, 0.1))
    return Training(Glance(curve, {"node1": DeviceUse(1, NOW_S - 1, use_pct, 10_000, 80_000, 100, 400)}))


TASKS = (
    Task("_0", "COMPLETED", "lr 0.1", training(1.9)),
    Task("_1", "RUNNING", "lr 0.3", training(0.412, 80.0)),
    Task("_2", "FAILED", "lr 3", training(math.inf), NAN),
    Task("_3", "PENDING", "lr 9"),
)


def line_at(width: int, so_far: ArraySoFar | None) -> str:
    """The row of an array with one running and one waiting task."""
    jobs = [
        make_job("4017_1", "ada", state="RUNNING"),
        make_job("4017_3", "ada", state="PENDING", reason="Priority"),
    ]
    rows = job_rows(queue_of(jobs, "ada", tuple), "ada", NOW_S, array_of=lambda folded: so_far)
    return plain(
        row_line(rows.row(0), fit_columns(JOB_COLUMNS, width, training_columns(width, are_all_shown=False)))
    )


def test_a_sweep_shows_its_ended_tasks_best_loss_use_and_findings_in_eighty_columns() -> None:
    row = line_at(80, array_so_far(TASKS, 4, are_all_known=True))
    assert all(told in row for told in ("4017 ×4", "2/4 ended", "0.412 _1", "80%", f"✖ 1/4 {NAN.rule}"))


def test_a_wide_row_of_a_sweep_also_names_the_cause_and_counts_the_states() -> None:
    row = line_at(300, array_so_far(TASKS, 4, are_all_known=True))
    assert all(
        told in row
        for told in ("4017_[1,3]", "best 0.412 in _1", "1 R 1 PD", f"✖ 1 of 4: {NAN.rule} lr too high")
    )


def test_an_array_whose_ended_tasks_slurm_has_forgotten_shows_no_number_of_them() -> None:
    so_far = array_so_far(TASKS[1:2], 2, are_all_known=False)
    assert so_far.num_ended is None
    assert "ended" not in line_at(80, so_far)


@pytest.mark.parametrize(("width", "told"), [(80, "≤ 0.412"), (300, "0.412 in _1 of 3 read")])
def test_the_best_of_some_tasks_says_how_many_were_read(width: int, told: str) -> None:
    so_far = array_so_far((*TASKS, Task("_4", "COMPLETED")), 5, are_all_known=False)
    assert told in line_at(width, so_far)


def test_the_last_task_in_the_queue_stands_for_its_whole_sweep() -> None:
    queue = queue_of([make_job("4017_3", "ada")], "ada", tuple)
    whole = array_so_far(TASKS, 4, are_all_known=True)
    assert "4017 ×4" in plain(
        row_line(job_rows(queue, "ada", NOW_S, array_of=lambda folded: whole).row(0), LAYOUT)
    )
    alone = job_rows(queue, "ada", NOW_S, lambda job: (training(0.5), None)).row(0)
    assert all(told in plain(row_line(alone, LAYOUT)) for told in ("4017_3", "0.5"))


def test_an_array_of_which_nothing_is_known_says_so() -> None:
    assert "–" in line_at(80, None)


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_a_loss_that_is_not_finite_is_never_the_best(state: str) -> None:
    told = array_so_far([Task("_0", state, "", training(math.nan))], 1, are_all_known=True)
    assert told.best is None


def test_the_loss_of_a_failed_task_is_the_best_only_if_there_is_no_other() -> None:
    failed = Task("_0", "FAILED", "", training(0.1))
    both = array_so_far([failed, TASKS[0]], 2, are_all_known=True)
    assert both.best is not None
    assert both.best.name == "_0"
    alone = array_so_far([failed, replace(TASKS[0], name="_7")], 2, are_all_known=True)
    assert alone.best is not None
    assert alone.best.name == "_7"


def test_the_worst_finding_stands_for_the_others() -> None:
    mild = replace(NAN, rule="DAT001", severity=Severity.WARNING)
    tasks = [replace(TASKS[0], finding=mild), TASKS[2]]
    assert f"✖ 2 of 4: {NAN.rule} +1" in line_at(300, array_so_far(tasks, 4, are_all_known=True))


def test_an_array_is_healthy_only_if_every_task_that_has_begun_is() -> None:
    healthy = [replace(task, is_healthy=True) for task in TASKS[:2]]
    assert array_so_far([*healthy, TASKS[3]], 3, are_all_known=True).is_healthy
    assert not array_so_far([*healthy, TASKS[2]], 3, are_all_known=True).is_healthy
    assert not array_so_far([TASKS[3]], 1, are_all_known=True).is_healthy
