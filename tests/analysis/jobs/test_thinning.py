"""The records that are thinned: rotated telemetry first, oldest runs first, and no more than needed."""

from __future__ import annotations

from coach.analysis.jobs.thinning import plan_thinning
from coach.model.training.records import Part, RecordLimits, RunRecords, Volume

MB = 10**6
OLD, MIDDLE, NEW = (f"2026112{day}-142233-ddp-000{day}" for day in (1, 2, 3))
PLENTY = RecordLimits(10**12, 10**6)


def heavy(run_id: str) -> RunRecords:
    return RunRecords(run_id, Volume(4, 32 * MB), Volume(1, 8 * MB), Volume(8, 16 * MB), Volume(4, 20_000))


def test_records_within_the_limits_are_left_alone() -> None:
    plan = plan_thinning([heavy(OLD), heavy(NEW)], (), PLENTY)
    assert plan.steps == ()
    assert plan.is_enough
    assert not plan.is_over


def test_rotated_telemetry_of_the_oldest_run_goes_first_and_nothing_more_than_needed() -> None:
    limits = RecordLimits(160 * MB, 1000)
    plan = plan_thinning([heavy(NEW), heavy(OLD), heavy(MIDDLE)], (), limits)
    assert [(step.run_id, step.part) for step in plan.steps] == [(OLD, Part.OLD)]
    assert plan.now.size_bytes > 160 * MB > 144 * MB >= plan.after.size_bytes


def test_the_other_telemetry_comes_before_any_metrics() -> None:
    plan = plan_thinning([heavy(OLD), heavy(NEW)], (), RecordLimits(40 * MB, 1000))
    parts = [(step.run_id, step.part) for step in plan.steps]
    assert parts == [(OLD, Part.OLD), (NEW, Part.OLD), (OLD, Part.TELEMETRY), (NEW, Part.TELEMETRY)]
    assert plan.after.size_bytes < 36 * MB


def test_too_many_files_are_packed_even_if_they_are_small() -> None:
    records = [
        RunRecords(run_id, Volume(), Volume(40, 400_000), Volume(60, 600_000), Volume(4, 1000))
        for run_id in (OLD, NEW)
    ]
    plan = plan_thinning(records, (), RecordLimits(10**9, 150))
    assert [(step.run_id, step.part) for step in plan.steps] == [
        (OLD, Part.TELEMETRY),
        (NEW, Part.TELEMETRY),
    ]
    assert plan.after == Volume(130, 2_002_000)


def test_a_living_run_keeps_all_records_and_a_saving_that_is_too_small_is_reported() -> None:
    plan = plan_thinning([heavy(OLD), heavy(NEW)], {OLD}, RecordLimits(30 * MB, 1000))
    assert {step.run_id for step in plan.steps} == {NEW}
    assert plan.is_over
    assert not plan.is_enough


def test_thinned_records_are_not_thinned_for_ever() -> None:
    packed = RunRecords(OLD, Volume(), Volume(1, 1_400_000), Volume(1, 1_400_000), Volume(4, 1000))
    assert plan_thinning([packed], (), RecordLimits(MB, 3)).steps == ()
