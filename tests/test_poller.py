from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest

from coach.model.reading import NodeList, Reading
from coach.model.snapshot import Watch
from coach.poller import Poller, SourceFactory
from coach.sources.slurm.client import JobsSource
from tests.sources.scripted_io import ScriptedIo, captured
from tests.waiting import wait_until


class Ticker:
    """Emits its name at each poll."""

    interval_s = 0.01

    def __init__(self, name: str) -> None:
        self.name = name
        self.num_polls = 0

    def poll(self) -> Iterable[Reading]:
        self.num_polls += 1
        yield Reading(self.name, 1.0, 0.0, NodeList(()))


class Sources:
    """Makes a Ticker per watched target, and keeps all of them."""

    def __init__(self, make: Callable[[str], Ticker] = Ticker) -> None:
        self.made: list[Ticker] = []
        self._make = make

    def __call__(self, watch: Watch) -> Mapping[str, SourceFactory]:
        def factory(name: str) -> SourceFactory:
            def make() -> Ticker:
                self.made.append(self._make(name))
                return self.made[-1]

            return make

        return {name: factory(name) for name in watch.targets}


def source_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("source ")]


@pytest.fixture
def poller() -> Iterator[tuple[Poller, Sources]]:
    sources = Sources()
    made = Poller(sources)
    yield made, sources
    made.stop()
    assert source_threads() == []


def names(poller: Poller) -> set[str]:
    return {reading.source for reading in poller.readings(0.05)}


def test_the_queue_is_read_again_after_an_action_and_not_while_it_is_held() -> None:
    io, held = ScriptedIo({"jobs": captured("squeue-22.05.txt")}), threading.Event()
    running = Poller(
        lambda watch: {"jobs": lambda: JobsSource(io, "nobody", 3600.0)}, is_held=lambda key: held.is_set()
    )
    try:
        running.watch(Watch())
        wait_until(lambda: io.asked == ["jobs"], 5, "the first look")
        running.refresh_soon()
        came: list[str] = []

        def has_come_twice() -> bool:
            came.extend(reading.source for reading in running.readings(0.05))
            return came == ["jobs"] * 2

        wait_until(has_come_twice, 5, "the next, long before its hour is over")
        held.set()
        running.refresh_soon()
        assert list(running.readings(0.5)) == []
        assert io.asked == ["jobs"] * 2
    finally:
        running.stop()


def test_sources_start_and_stop_as_the_watch_changes_and_the_others_go_on(
    poller: tuple[Poller, Sources],
) -> None:
    running, sources = poller
    running.watch(Watch(targets=("a", "b")))
    wait_until(lambda: names(running) == {"a", "b"}, 5, "both sources answer")
    running.watch(Watch(targets=("b", "c")))
    wait_until(lambda: names(running) == {"b", "c"}, 5, "a stopped, c started")
    assert sorted(source.name for source in sources.made) == ["a", "b", "c"]
    wait_until(lambda: len(source_threads()) == 2, 5, "a's thread ended")
    assert running.keys == {"b", "c"}


def test_readings_of_a_stopped_source_do_not_mix_with_its_successors(
    poller: tuple[Poller, Sources],
) -> None:
    running, sources = poller
    running.watch(Watch(targets=("a",)))
    wait_until(lambda: sources.made and sources.made[0].num_polls > 2, 5, "readings wait in the queue")
    running.watch(Watch())
    assert running.readings(0.0) == []


def test_refresh_soon_ends_a_long_pause() -> None:
    class Slow(Ticker):
        interval_s = 3600.0

    sources = Sources(Slow)
    poller = Poller(sources)
    try:
        poller.watch(Watch(targets=("a",)))
        wait_until(lambda: names(poller) == {"a"}, 5, "the first answer")
        poller.refresh_soon()
        wait_until(lambda: names(poller) == {"a"}, 5, "the second, long before the hour is over")
    finally:
        poller.stop()


def test_a_source_that_raises_reports_the_error() -> None:
    class Broken(Ticker):
        def __init__(self, name: str) -> None:
            raise RuntimeError("no such thing")

    poller = Poller(Sources(Broken))
    try:
        poller.watch(Watch(targets=("log:run1",)))
        (reading,) = wait_until(lambda: poller.readings(0.05), 5, "the error arrives")
        assert (reading.source, reading.target) == ("log", "run1")
        assert reading.error == "RuntimeError: no such thing"
    finally:
        poller.stop()


def test_a_stopped_poller_starts_nothing_and_leaves_no_thread() -> None:
    poller = Poller(Sources())
    poller.watch(Watch(targets=("a",)))
    poller.stop()
    poller.watch(Watch(targets=("b",)))
    assert (poller.keys, source_threads()) == (frozenset(), [])


def test_a_source_that_hangs_does_not_hold_up_the_end() -> None:
    released = threading.Event()

    class Hanging(Ticker):
        def poll(self) -> Iterable[Reading]:
            self.num_polls += 1
            released.wait(30)
            return []

    sources = Sources(Hanging)
    poller = Poller(sources)
    poller.watch(Watch(targets=("a",)))
    wait_until(lambda: sources.made and sources.made[0].num_polls, 5, "it hangs")
    stopping = threading.Thread(target=poller.stop)
    stopping.start()
    stopping.join(timeout=10)
    assert not stopping.is_alive()
    released.set()
    wait_until(lambda: not source_threads(), 5, "its thread ends after the command")
