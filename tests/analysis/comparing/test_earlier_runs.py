"""A run compared with earlier ones, from the few values that are kept of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.comparing.earlier_runs import across, wilson, work_of
from coach.model.judging.verdict import PastRun
from tests.analysis.made_jobs import job
from tests.rules.examples import run

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def past(number: int, **said: object) -> PastRun:
    """The attempt of this hour: it ran for half an hour and failed."""
    start_s = number * HOUR_S
    made = PastRun(
        f"run-{number}", "recipe ddp", "FAILED", start_s - 60, start_s, start_s + HOUR_S / 2, cause="cuda_oom"
    )
    return replace(made, **said)  # type: ignore[arg-type]


def test_earlier_attempts_at_the_same_training_come_oldest_first_without_later_or_other_runs() -> None:
    known = [past(4), past(2), past(1), past(9), past(3, work="recipe amp"), past(5)]
    found = across(past(5), known)
    assert [each.target for each in found.attempts] == ["run-1", "run-2", "run-4"]


def test_tasks_of_one_array_are_one_attempt_and_a_run_queued_before_the_failure_is_no_remedy() -> None:
    tasks = [past(1, target=f"17_{task}") for task in range(5)]
    queued_early = past(3, target="18", submitted_s=0.0)
    found = across(past(5), [*tasks, queued_early])
    assert [each.target for each in found.attempts] == ["18"]
    assert len(across(past(5), tasks).attempts) == 1


def test_a_job_is_recognised_by_script_and_folder_with_any_number_in_its_name() -> None:
    one = replace(job("17"), work_dir="/w/exp1", command=None, name="train-1")
    other = replace(one, job_id="18", work_dir="/w/exp2", name="train-2")
    assert work_of(None, one) == work_of(None, other)
    assert work_of(None, one) != work_of(None, replace(other, command="/w/other.sh"))
    assert work_of(None, replace(one, work_dir=None)) is None


def test_programs_of_the_same_name_in_other_folders_are_other_work() -> None:
    def work(directory: str, *words: str) -> str | None:
        own = {"kind": "script", "words": list(words), "directory": directory}
        return work_of(run(recipe="train", launch={"own": own}), None)

    assert work("/w/vision", "train.py") != work("/w/speech", "train.py")
    assert work("/home/ada", "/w/vision/train.py") != work("/home/ada", "/w/speech/train.py")
    assert work("/w/exp1", "train.py", "--lr", "1") == work("/w/exp2", "train.py", "--lr", "2")
    assert work_of(run(recipe="ddp", launch={"recipe": "ddp"}), None) == "recipe ddp"


def test_the_interval_of_a_rate_is_wilsons_and_wider_for_one_of_many() -> None:
    low, high = wilson(4, 10)
    assert (low, high) == (pytest.approx(0.168, abs=1e-3), pytest.approx(0.687, abs=1e-3))
    wide = wilson(4, 10, num_intervals=100)
    assert wide[0] < low < high < wide[1]
    assert wilson(0, 5)[0] == 0.0
    assert wilson(5, 5)[1] == 1.0


def node_failure(number: int, node: str) -> PastRun:
    return past(number, cause="slurm_node_fail", state="NODE_FAIL", nodes=(node,))


def test_a_node_is_counted_with_its_failures_beside_those_of_the_others() -> None:
    bad = [node_failure(number, "n1") for number in (1, 2, 3)]
    own_faults = [past(number, nodes=("n1",)) for number in (4, 5)]
    others = [past(number, nodes=("n2",), state="COMPLETED", cause=None) for number in range(6, 26)]
    (record,) = across(node_failure(30, "n1"), [*bad, *own_faults, *others]).nodes
    assert (record.num_failed, record.num_runs, record.num_failed_peers, record.num_runs_peers) == (
        4,
        6,
        0,
        20,
    )
    assert record.low > record.rate_of_peers
    assert across(past(30, nodes=("n2",)), [*bad, *others]).nodes == ()


def test_of_a_run_on_several_nodes_only_the_one_that_was_named_has_failed() -> None:
    wide = [past(number, cause="xid_hw_error", nodes=("n1", "n2"), node="n2") for number in (1, 2, 3)]
    found = across(past(9, nodes=("n1", "n2")), wide).nodes
    assert [(record.node, record.num_failed) for record in found] == [("n2", 3)]


def fast(number: int, rate: float, **said: object) -> PastRun:
    values = {"state": "COMPLETED", "cause": None, "device": "H100", "world_size": 8, **said}
    return past(number, samples_per_s=rate, samples_per_s_noise=1.0, **values)


def test_a_throughput_is_put_beside_that_of_the_same_runs_of_two_weeks() -> None:
    before = [fast(number, rate) for number, rate in ((1, 100.0), (2, 101.0), (3, 99.0))]
    pace = across(fast(9, 80.0), before).pace
    assert pace is not None
    assert pace.ratio == pytest.approx(0.8)
    assert 0.7 < pace.low < 0.8 < pace.high < 0.9
    assert across(fast(9, 80.0), before[:2]).pace is None  # two runs do not show the scatter
    assert across(fast(9 + 15 * 24, 80.0), before).pace is None


@pytest.mark.parametrize("other", [{"device": "A100"}, {"world_size": 4}, {"parameters": {"batch_size": 8}}])
def test_runs_with_another_expected_speed_are_not_compared(other: dict[str, object]) -> None:
    before = [fast(number, 100.0, **other) for number in (1, 2, 3)]
    assert across(fast(9, 80.0), before).pace is None


def test_another_seed_or_length_is_the_same_speed() -> None:
    before = [
        fast(number, 100.0 + number, parameters={"seed": number, "epochs": number}) for number in (1, 2, 3)
    ]
    assert across(fast(9, 80.0), before).pace is not None
