from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pytest

from coach.model.reading import JobList, Reading
from coach.sources.polite.polling import Pace, next_pause, poll_loop
from tests.waiting import wait_until


def answer(*, error: str | None = None, is_caught_up: bool = True) -> Reading:
    payload = None if error else JobList((), True)
    return Reading("jobs", 1.0, 0.0, payload, error=error, is_caught_up=is_caught_up)


class ScriptedSource:
    """Emits the prepared answers, then the last one for ever."""

    name = "jobs"

    def __init__(self, answers: Iterable[Reading], interval_s: float) -> None:
        self.interval_s = interval_s
        self._answers = list(answers)
        self.num_polls = 0

    def poll(self) -> Iterator[Reading]:
        self.num_polls += 1
        yield self._answers[min(self.num_polls, len(self._answers)) - 1]


class RunningLoop:
    """A poll loop in a thread, as the poller runs it."""

    def __init__(self, source: ScriptedSource, may_poll: Callable[[], bool] = lambda: True) -> None:
        self.readings: list[Reading] = []
        self.stop = threading.Event()
        self.wake = threading.Event()
        self.pace = Pace()
        self.thread = threading.Thread(
            target=poll_loop,
            args=(source, self.readings.append, self.stop),
            kwargs={"wake": self.wake, "pace": self.pace, "may_poll": may_poll},
        )

    def __enter__(self) -> RunningLoop:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        assert not self.thread.is_alive()

    def end(self) -> None:
        self.stop.set()
        self.pace.ring()
        self.thread.join(10)

    def poll_soon(self) -> None:
        self.wake.set()
        self.pace.ring()


def test_a_pause_of_an_hour_ends_at_once_when_coach_closes() -> None:
    with RunningLoop(ScriptedSource([answer()], interval_s=3600)) as loop:
        wait_until(lambda: loop.readings, 10, "the first poll")
        start = time.monotonic()
        loop.end()
    assert time.monotonic() - start < 1.0


def test_after_a_launch_the_next_poll_comes_soon() -> None:
    source = ScriptedSource([answer()], interval_s=3600)
    with RunningLoop(source) as loop:
        wait_until(lambda: len(loop.readings) == 1, 10, "the first poll")
        loop.poll_soon()
        wait_until(lambda: len(loop.readings) == 2, 10, "the poll that was asked for")
        assert not loop.wake.is_set()


def test_a_held_source_waits_for_its_pace_and_polls_once_it_is_released() -> None:
    looks: list[bool] = []
    is_held = True

    def may_poll() -> bool:
        looks.append(not is_held)
        return not is_held

    with RunningLoop(ScriptedSource([answer()], interval_s=3600), may_poll) as loop:
        wait_until(lambda: len(looks) == 2, 10, "it waits")
        loop.pace.ring()
        wait_until(lambda: len(looks) == 3, 10, "it has looked again")
        assert loop.readings == []
        is_held = False
        loop.pace.ring()
        wait_until(lambda: loop.readings, 10, "the first poll")
    assert looks[:3] == [False, False, False]


def test_bytes_that_are_still_unread_are_read_without_a_pause() -> None:
    bites = [answer(is_caught_up=False), answer(is_caught_up=False), answer()]
    source = ScriptedSource(bites, interval_s=3600)
    with RunningLoop(source) as loop:
        wait_until(lambda: len(loop.readings) == 3, 10, "all three bites")
        assert source.num_polls == 3


def test_a_defect_in_a_source_is_shown_and_does_not_end_its_thread() -> None:
    class Flawed(ScriptedSource):
        def poll(self) -> Iterator[Reading]:
            self.num_polls += 1
            raise KeyError("nodes")

    source = Flawed([], interval_s=3600)
    with RunningLoop(source) as loop:
        wait_until(lambda: loop.readings, 10, "the reading that tells")
        assert loop.thread.is_alive()
    assert loop.readings[0].error == "KeyError: 'nodes'"
    assert loop.readings[0].payload is None


@pytest.mark.parametrize(
    ("interval_s", "duration_s", "num_failures", "expected_s"),
    [
        (10, 0.05, 0, 10),
        (10, 2.0, 0, 40),
        (10, 11.0, 0, 60),
        (10, 9.0, 1, 2),
        (10, 9.0, 2, 4),
        (10, 9.0, 5, 32),
        (10, 9.0, 6, 60),
        (10, 9.0, 5000, 60),
        (120, 9.0, 40, 120),
    ],
)
def test_slow_answers_widen_the_pause_and_failures_back_off(
    interval_s: float, duration_s: float, num_failures: int, expected_s: float
) -> None:
    assert next_pause(interval_s, duration_s, num_failures) == pytest.approx(expected_s)
