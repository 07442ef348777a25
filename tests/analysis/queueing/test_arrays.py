from __future__ import annotations

import pytest

from coach.analysis.queueing.arrays import each_task_once, fold, parse_task_ids, unfold, without_rests
from tests.analysis.made_jobs import job


def test_an_array_is_one_row_that_counts_its_tasks_by_state() -> None:
    rows = [
        job("17_[3-8%2]", reason="JobArrayTaskLimit"),
        job("17_0", "COMPLETED"),
        job("17_1", "RUNNING", num_gpus=2),
        job("17_2", "RUNNING", num_gpus=2),
        job("18", "RUNNING"),
    ]
    array, single = fold(rows)
    assert array.job.job_id == "17_[0-8%2]"
    assert (array.job.state, array.job.num_gpus) == ("RUNNING", 4)
    assert dict(array.states) == {"PENDING": 6, "RUNNING": 2, "COMPLETED": 1}
    assert (single.job.job_id, single.is_folded) == ("18", False)


def test_tasks_that_were_cancelled_while_they_waited_are_of_the_array_whose_number_they_show() -> None:
    rows = [job("17", "CANCELLED", reason="JobArrayTaskLimit"), job("18"), job("17_0", "CANCELLED")]
    rows.append(job("17_1", "COMPLETED"))
    array, single = fold(rows)
    assert (array.job.job_id, array.job.state, single.job.job_id) == ("17_[0-1]", "CANCELLED", "18")
    assert [row.job_id for row in without_rests(rows)] == ["18", "17_0", "17_1"]
    (alone,) = fold([job("17", "CANCELLED")])
    assert (alone.job.job_id, alone.is_folded) == ("17", False)


def test_unfolding_gives_each_waiting_task_a_row_of_its_own() -> None:
    (array,) = fold([job("17_[3-5,9%2]"), job("17_0", "RUNNING")])
    assert [row.job_id for row in unfold(array)] == ["17_0", "17_3", "17_4", "17_5", "17_9"]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["COMPLETED", "FAILED", "COMPLETED"], "FAILED"),
        (["COMPLETED", "FAILED", "TIMEOUT", "TIMEOUT"], "TIMEOUT"),
        (["COMPLETED", "COMPLETED"], "COMPLETED"),
        (["FAILED", "RUNNING"], "RUNNING"),
    ],
)
def test_an_ended_array_has_the_state_of_the_tasks_that_went_wrong(states: list[str], expected: str) -> None:
    (array,) = fold([job(f"17_{number}", state) for number, state in enumerate(states)])
    assert array.job.state == expected


def test_a_task_in_several_rows_stays_in_the_first_one() -> None:
    rows = [job("17_2", "RUNNING"), job("17_[0-5%2]"), job("17_[3-9]"), job("17_2", "FAILED")]
    assert [row.job_id for row in each_task_once(rows)] == ["17_[0-1,3-5%2]", "17_2", "17_[6-9]"]


def test_a_heterogeneous_job_is_one_row_and_unfolds_into_its_parts() -> None:
    (het,) = fold([job("20+1", "RUNNING"), job("20+0", "RUNNING", num_gpus=3)])
    assert (het.job.job_id, het.job.num_gpus) == ("20+[0-1]", 4)
    assert [row.job_id for row in unfold(het)] == ["20+0", "20+1"]


def test_the_same_number_of_another_user_or_cluster_is_another_job() -> None:
    rows = [job("17_1", "RUNNING"), job("17_2", "RUNNING", user="bob"), job("17_3", "RUNNING", cluster="c2")]
    assert len(fold(rows)) == 3


def test_a_list_that_slurm_cut_or_that_is_absurdly_long_stays_as_it_is() -> None:
    cut = parse_task_ids("17_[1-3,...]")
    assert cut is not None
    assert cut.is_cut
    (folded,) = fold([job("17_[1-3,...]")])
    assert [row.job_id for row in unfold(folded)] == ["17_[1-3,...]"]
    huge = parse_task_ids("17_[0-4000000000]")
    assert huge is not None
    assert (huge.tasks, huge.is_cut) == ((), True)


@pytest.mark.parametrize(
    ("printed", "tasks"),
    [
        ("5711_[100,103,201,204,305,308,4", (100, 103, 201, 204, 305, 308)),
        ("12345678_[3,7,11,15-20,25,31-9", (3, 7, 11, *range(15, 21), 25)),
        ("17_[1-2,5%", (1, 2)),
        ("17_[1", ()),
    ],
)
def test_a_list_that_squeue_cut_without_a_mark_ends_before_its_last_number(
    printed: str, tasks: tuple[int, ...]
) -> None:
    ids = parse_task_ids(printed)
    assert ids is not None
    assert (ids.tasks, ids.limit, ids.is_cut) == (tasks, None, True)


def test_steps_and_limits_of_an_array_are_read() -> None:
    ids = parse_task_ids("17_[0-8:4,20%3]")
    assert ids is not None
    assert (ids.tasks, ids.limit) == ((0, 4, 8, 20), 3)
    assert parse_task_ids("17") is None


def test_runs_of_this_machine_whose_names_differ_in_the_end_are_no_array() -> None:
    runs = [job("20261121-142233-parallel_3d-4f2a"), job("20261121-142233-parallel_3d-77aa")]
    assert [folded.job for folded in fold(runs)] == runs


def test_tasks_that_ended_badly_are_counted_and_cancelled_ones_are_not() -> None:
    states = ("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "COMPLETED", "PREEMPTED", "RUNNING")
    (array,) = fold([job(f"17_{index}", state) for index, state in enumerate(states)])
    assert array.num_failed == 3
