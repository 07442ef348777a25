"""Columns stay aligned with their samples after additions, thinning and copies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from coach.lookback.series import Series, SeriesByDevice, pick
from coach.model.training.telemetry import GpuSample


def sample(time_s: float, utilization_pct: float | None = 50.0) -> GpuSample:
    return GpuSample("node1", time_s, 0, "GPU-1", utilization_pct=utilization_pct, power_w=2 * time_s)


def series(times: Sequence[float]) -> Series[GpuSample]:
    made: Series[GpuSample] = Series(["utilization_pct"])
    for time_s in times:
        made.add(sample(time_s, time_s))
    return made


def test_a_column_is_read_at_a_range_or_at_single_places() -> None:
    made = series([1, 2, 3, 4])
    assert list(made.column("utilization_pct", range(1, 3))) == [2, 3]
    assert list(made.column("utilization_pct", [0, 3])) == [1, 4]
    assert list(made.column("power_w", [0, 3])) == [2, 8]  # not kept as a column


def test_an_unmeasured_value_in_a_column_is_nan() -> None:
    made: Series[GpuSample] = Series(["utilization_pct"])
    made.add(sample(1.0, None))
    assert math.isnan(made.column("utilization_pct", range(1))[0])
    assert math.isnan(made.column("sm_activity_pct", range(1))[0])


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ([5], [1]),
        ([5, 8], [3, 3]),
        ([0, 1, 2, 10, 11], [1, 1, 1, 1, 1]),  # a gap has no weight
        ([0, 2, 4, 5], [2, 2, 1, 1]),
        ([3, 3], [0, 0]),
        ([3, 2, 4], [0, 0, 2]),  # a clock that was set back
    ],
)
def test_a_sample_counts_for_the_time_to_its_nearer_neighbour(
    times: list[float], seconds: list[float]
) -> None:
    assert list(series(times).seconds) == seconds


def test_samples_weigh_more_after_thinning() -> None:
    made = series(range(8))
    made.thin_out()
    assert [kept.time_s for kept in made.samples] == list(made.times) == [0, 2, 4, 5, 6, 7]
    assert list(made.column("utilization_pct", range(6))) == list(made.times)
    assert list(made.seconds) == [2, 2, 1, 1, 1, 1]
    made.add(sample(9, 9))
    assert list(made.seconds) == [2, 2, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("is_thinned_out", [False, True])
def test_the_total_of_a_complete_column_is_the_sum_of_its_parts(is_thinned_out: bool) -> None:
    made = series([0, 1, 3, 3, 4, 9, 10, 12, 11, 15])
    if is_thinned_out:
        made.thin_out()
        made = made.copy()
        made.add(sample(18, 18))
    values, seconds = made.column("utilization_pct", range(len(made.times))), made.seconds
    for first in range(len(values)):
        for end in range(first, len(values) + 1):
            parts = [values[place] * seconds[place] for place in range(first, end)]
            together = made.total("utilization_pct", range(first, end))
            assert together == pytest.approx((sum(parts), sum(seconds[first:end])))


@pytest.mark.parametrize("utilization_pct", [None, math.nan, math.inf])
def test_a_column_is_complete_until_something_was_not_measured(utilization_pct: float | None) -> None:
    made = series([1, 2])
    assert made.is_complete("utilization_pct")
    assert not made.is_complete("power_w")  # not kept as a column
    copy = made.copy()
    made.add(sample(3, utilization_pct))
    assert not made.is_complete("utilization_pct")
    assert copy.is_complete("utilization_pct")


def test_a_copy_does_not_change_with_its_original() -> None:
    many: SeriesByDevice[str, GpuSample] = SeriesByDevice(100, 4, 8, ["utilization_pct"])
    many.add("a", sample(1))
    copy = many.copy()
    many.add("a", sample(2))
    copy.add("b", sample(3))
    assert list(copy.of("a").times) == [1]
    assert list(many.of("a").times) == [1, 2]
    assert many.keys() == ["a"]
    assert list(copy.of("b").column("utilization_pct", range(1))) == [50]


def test_an_unknown_device_has_no_samples() -> None:
    many: SeriesByDevice[str, GpuSample] = SeriesByDevice(100, 4, 8)
    assert many.of("a").samples == []


def test_pick_takes_a_range_whole() -> None:
    assert list(pick(series(range(4)).times, range(2, 4))) == [2, 3]
    assert list(pick(series(range(4)).times, [])) == []
