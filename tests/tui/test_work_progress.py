"""Work of more than a second is shown, and the first Esc stops it."""

from __future__ import annotations

import threading

import pytest

from coach.tui.question import Question
from coach.tui.work_progress import WorkProgress
from tests.tui.driving import opened
from tests.tui.fake_ports import FakePorts
from tests.tui.labels import shipped


class Works:
    """Work at a time that the test says."""

    def __init__(self) -> None:
        self.now_s = 10.0
        self.stopped: list[str] = []
        self.progress = WorkProgress(lambda: self.now_s)

    @property
    def words(self) -> str:
        return self.progress.words(shipped)


def test_work_of_less_than_a_second_is_not_shown() -> None:
    works = Works()
    work = works.progress.begin("planning ddp", lambda: works.stopped.append("ddp"))
    works.now_s = 10.9
    assert works.words == ""
    assert not works.progress.stop()
    works.now_s = 13.0
    assert works.words == "planning ddp · 3 s · Esc stops"
    assert works.progress.end(work)
    assert works.words == ""


def test_stopped_work_is_reported_to_its_screen_and_its_result_is_dropped() -> None:
    works = Works()
    work = works.progress.begin("planning ddp", lambda: works.stopped.append("ddp"))
    works.now_s = 12.0
    assert works.progress.stop()
    assert works.stopped == ["ddp"]
    assert not works.progress.end(work)
    assert not works.progress.stop()


def test_work_that_changes_something_is_shown_and_never_stopped_halfway() -> None:
    works = Works()
    works.progress.begin("submitting", None)
    works.now_s = 14.0
    assert works.words == "submitting · 4 s"
    assert not works.progress.stop()


@pytest.mark.parametrize("size", [(80, 24)])
async def test_esc_stops_a_plan_that_lasts_and_the_next_one_leaves_it(size: tuple[int, int]) -> None:
    ports, may_go_on = FakePorts(), threading.Event()
    ports.launches.before_prepare = lambda: may_go_on.wait(60) and None
    async with opened(ports=ports, size=size) as driver:
        try:
            await driver.press("1")
            await driver.reaches("plan")
            driver.clock.turn(3.0)
            await driver.sees("planning baseline · 3 s · Esc stops")
            await driver.press("escape")
            await driver.sees("stopped: planning baseline")
            assert driver.place == "plan"
            await driver.press("escape")
            await driver.reaches("cluster")
        finally:
            may_go_on.set()
        assert ports.launches.submitted == []


@pytest.mark.parametrize("size", [(80, 24)])
async def test_the_first_esc_stops_a_question_to_slurm_and_the_next_one_leaves(size: tuple[int, int]) -> None:
    ports, may_answer = FakePorts(), threading.Event()
    ports.questions.before_answer = lambda: may_answer.wait(60)
    async with opened(ports=ports, size=size) as driver:
        try:
            await driver.press("H")
            await driver.reaches("history")
            driver.clock.turn(3.0)
            await driver.sees("asking for the jobs that have ended · 3 s · Esc stops")
            await driver.press("escape")
            await driver.sees("stopped: asking for the jobs that have ended")
            assert (driver.place, ports.questions.stopped) == ("history", [Question.PAST_JOBS])
            may_answer.set()
            await driver.press("escape")
            await driver.reaches("cluster")
            await driver.press("H")
            await driver.reaches("history")
            await driver.sees("no job of yours has ended")
            assert ports.questions.asked.count(Question.PAST_JOBS) == 2, "it is asked again at once"
        finally:
            may_answer.set()


@pytest.mark.parametrize("size", [(80, 24)])
async def test_a_message_stands_before_the_work_under_way(size: tuple[int, int]) -> None:
    ports, may_answer = FakePorts(), threading.Event()
    ports.questions.before_answer = lambda: may_answer.wait(60)
    async with opened(ports=ports, size=size) as driver:
        try:
            await driver.press("H")
            await driver.reaches("history")
            await driver.press("escape")
            await driver.reaches("cluster")
            driver.clock.turn(3.0)
            await driver.sees("asking for the jobs that have ended · 3 s · Esc stops")
            await driver.press("ctrl+r")
            await driver.sees("reading everything again")
            driver.clock.turn(2.0)
            driver.app._stage.tell_progress()
            await driver.sees("reading everything again")
            await driver.press("down")
            await driver.sees("asking for the jobs that have ended · 5 s · Esc stops")
        finally:
            may_answer.set()
