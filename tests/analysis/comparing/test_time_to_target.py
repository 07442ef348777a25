from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coach.analysis.comparing.sweep_table import member_of, table
from coach.analysis.comparing.time_to_target import target_words, time_to_target
from coach.analysis.comparing.two_runs import BETTER, NO_DIFFERENCE, NOT_COMPARABLE, Comparison, Row, compare
from coach.lookback.history import History
from coach.model.snapshot import TargetSnapshot
from coach.model.training.metrics import MetricEvent
from tests.rules import examples


def event(name: str, step: int, time_s: float, **fields: Any) -> MetricEvent:
    return MetricEvent(0, name, time_s, step, fields)


def evaluations(*accuracies: float, seconds: float = 10.0) -> list[MetricEvent]:
    """One evaluation every 100 steps."""
    return [
        event("eval", 100 * number, 1000.0 + seconds * number, accuracy=accuracy)
        for number, accuracy in enumerate(accuracies, 1)
    ]


def reached(step: int, training_s: float, target: float = 0.9, **more: Any) -> MetricEvent:
    told: Mapping[str, Any] = {"accuracy": 0.92, "target_accuracy": target, "time_to_target_s": training_s}
    return event("target", step, 1000.0 + training_s, **told, **more)


def run(*events: MetricEvent, target: float = 0.9, state: str = "COMPLETED") -> TargetSnapshot:
    asked = examples.run(parameters={"target_accuracy": target}, state=state)
    return TargetSnapshot("a", None, run=asked, events=tuple(events))


def rows(before: TargetSnapshot, after: TargetSnapshot) -> dict[str, Row]:
    compared: Comparison = compare(before, History(), after, History())
    return {row.quantity: row for row in compared.rows}


def test_the_time_is_reported_with_and_without_start_up_and_in_steps() -> None:
    told = time_to_target(run(*evaluations(0.5, 0.92), reached(200, 20.0, start_up_s=5.0)))
    assert told is not None
    assert (told.training_s, told.total_s, told.step, told.accuracy) == (20.0, 25.0, 200, 0.92)
    assert (
        target_words(told) == "accuracy 0.9 reached after 20 s of training (25 s with start-up), at step 200"
    )


def test_a_run_below_its_target_shows_its_best_accuracy() -> None:
    told = time_to_target(run(*evaluations(0.5, 0.71, 0.7)))
    assert told is not None
    assert target_words(told) == "accuracy 0.9 not reached (best 0.71)"
    going = time_to_target(run(*evaluations(0.5), state="RUNNING"))
    assert going is not None
    assert target_words(going) == "accuracy 0.9 not reached yet (best 0.5)"
    unseen = time_to_target(run())
    assert unseen is not None
    assert target_words(unseen) == "accuracy 0.9 not reached (never evaluated)"


def test_a_run_without_a_target_has_nothing_to_tell() -> None:
    assert time_to_target(run(*evaluations(0.99), target=0.0)) is None
    assert "to accuracy 0.9" not in rows(run(target=0.0), run(target=0.0))


def test_a_run_resumed_from_a_checkpoint_has_steps_and_no_time() -> None:
    told = time_to_target(run(event("resume", 100, 1000.0), reached(200, 3.0, start_up_s=2.0)))
    assert told is not None
    assert (told.training_s, told.total_s, told.step) == (None, None, 200)
    assert "was not measured" in target_words(told)


def test_two_runs_are_compared_by_the_time_and_the_steps_that_they_took() -> None:
    slow = run(*evaluations(0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.92), reached(800, 80.0, start_up_s=5.0))
    fast = run(*evaluations(0.5, 0.92, seconds=5.0), reached(200, 10.0, start_up_s=6.0))
    found = rows(slow, fast)
    assert found["to accuracy 0.9"].verdict == BETTER
    assert found["to accuracy 0.9"].ratio == 0.125
    assert (found["with start-up"].before, found["with start-up"].after) == (85.0, 16.0)
    assert (found["steps to it"].before, found["steps to it"].after) == (800.0, 200.0)


def test_a_time_is_exact_to_the_evaluation_before_it() -> None:
    one = run(*evaluations(0.5, 0.92), reached(200, 20.0, start_up_s=5.0))
    other = run(*evaluations(0.5, 0.8, 0.92), reached(300, 30.0, start_up_s=5.0))
    assert rows(one, other)["to accuracy 0.9"].verdict == NO_DIFFERENCE


def test_a_run_that_did_not_get_there_is_named_in_the_comparison() -> None:
    there = run(*evaluations(0.92), reached(100, 10.0))
    row = rows(there, run(*evaluations(0.4, 0.71)))["to accuracy 0.9"]
    assert (row.after, row.verdict) == (None, NOT_COMPARABLE)
    assert row.because == "not reached (best 0.71) in the second run"
    row = rows(run(target=0.0), there)["to accuracy 0.9"]
    assert row.because == "no target_accuracy was set in the first run"
    row = rows(there, run(*evaluations(0.96), reached(100, 9.0, target=0.95), target=0.95))["to accuracy"]
    assert row.because == "other target (0.9 → 0.95)"


def test_a_group_can_be_ranked_by_it() -> None:
    snapshot = run(*evaluations(0.92), reached(100, 10.0))
    assert snapshot.run is not None
    (point,) = table("lr", [member_of(snapshot.run, snapshot, History(), [])])
    assert (point.metrics["time_to_target_s"], point.metrics["steps_to_target"]) == (10.0, 100)
    assert point.target is not None
    assert point.target.is_reached
