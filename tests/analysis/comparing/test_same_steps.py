"""The speed of a changed run relative to the first: over the same steps, with an interval, and no difference
reported where there is none."""

from __future__ import annotations

import random

import pytest

from coach.analysis.comparing.same_steps import says_difference, speedup
from coach.model.training.metrics import Step


def timed(seconds: list[float], first: int = 1) -> list[Step]:
    return [
        Step(0, number, 1000.0 + number, loss=1.0, num_samples_global=64, step_time_s=each)
        for number, each in enumerate(seconds, first)
    ]


def test_steps_that_are_long_by_themselves_stand_on_both_sides() -> None:
    noise = random.Random(3)
    long = [0.1 * (10.0 if number % 40 < 5 else 1.0) for number in range(200)]
    before = timed([each * noise.gauss(1.0, 0.02) for each in long])
    after = timed([each / 1.5 * noise.gauss(1.0, 0.02) for each in long])
    found = speedup(before, after)
    assert found is not None
    assert found.noise is not None
    assert abs(found.value - 1.5) < 0.02
    assert found.noise < 0.05, "blocks differ five-fold in time, but not in their ratio"
    assert says_difference(found, 0.01)


@pytest.mark.parametrize("seed", range(8))
def test_two_equal_runs_show_no_difference(seed: int) -> None:
    noise = random.Random(seed)
    before, after = (timed([0.1 * noise.gauss(1.0, 0.1) for _ in range(120)]) for _ in range(2))
    found = speedup(before, after)
    assert found is not None
    assert not says_difference(found, 0.02)


def test_only_steps_that_both_made_are_compared_and_few_have_no_interval() -> None:
    found = speedup(timed([0.1] * 100), timed([0.05] * 30, first=91))
    assert found is not None
    assert (round(found.value, 3), found.noise) == (2.0, None)
    assert not says_difference(found, 0.01)
    assert speedup(timed([0.1] * 10), timed([0.1] * 10, first=50)) is None
