"""The processor time that a login node allows: coach stops judging, then leaves, before it is killed."""

from __future__ import annotations

import pytest

from coach.tui.processor_limit import Left, ProcessorLimit
from tests.tui.driving import opened
from tests.tui.fake_session import RUN_ID, FakeSession, make_snapshot


class Used:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


@pytest.mark.parametrize(
    ("used_s", "left"),
    [(479.0, Left.ENOUGH), (480.0, Left.LITTLE), (569.0, Left.LITTLE), (570.0, Left.NONE)],
)
def test_the_processor_limit_tells_when_little_of_ten_minutes_is_left(used_s: float, left: Left) -> None:
    assert ProcessorLimit(600.0, lambda: used_s).left() is left


@pytest.mark.parametrize(
    ("used_s", "left"), [(13.0, Left.ENOUGH), (14.0, Left.LITTLE), (16.0, Left.LITTLE), (17.0, Left.NONE)]
)
def test_a_small_processor_limit_leaves_enough_time_for_the_last_message(used_s: float, left: Left) -> None:
    assert ProcessorLimit(20.0, lambda: used_s).left() is left


def test_without_a_limit_there_is_always_enough() -> None:
    assert ProcessorLimit(None, lambda: 1e9).left() is Left.ENOUGH


async def test_near_the_limit_no_job_is_judged_any_more_and_at_it_coach_leaves_in_words() -> None:
    used = Used()
    session = FakeSession(make_snapshot())
    async with opened(session) as driver:
        app = driver.app
        await driver.until(lambda: RUN_ID in session.watches[-1].targets, "the run is followed")
        app.processor = ProcessorLimit(600.0, used)
        used.s = 500.0
        await driver.sees("processor limit of 10 min nearly reached: no job is checked")
        assert session.watches[-1].targets == ()
        used.s = 580.0
        await driver.until(lambda: app.leaves_in_words is not None, "it leaves")
        assert "ends programs after 10 min of processor time" in (app.leaves_in_words or "")
