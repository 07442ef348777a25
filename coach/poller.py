"""Run each source in one long-lived thread; all threads write to one queue.

The value `Watch` says what to follow. When it changes, sources that are no longer needed stop and new ones
start; the others continue, and keep their position in every file.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from coach.model.reading import Reading
from coach.model.snapshot import Watch
from coach.sources.base import PollingSource, Source
from coach.sources.machine.disk import words_of_hang
from coach.sources.polite.polling import Pace, poll_loop

JOIN_TIMEOUT_S = 0.5
"""A source may hang in a command for longer than a user waits; its thread is a daemon and ends after the
command."""

HANG_S = 10.0
"""A file server hangs if it has not answered a call for this long. The call cannot be interrupted, so the
screen reports the hang meanwhile."""

SourceFactory = Callable[[], PollingSource | Source]
MakeSources = Callable[[Watch], Mapping[str, SourceFactory]]


@dataclass(slots=True)
class _Running:
    thread: threading.Thread
    stop: threading.Event
    wake: threading.Event
    hangs_at: Path | None = None
    """The file whose hanging file system was reported."""


class Poller:
    """Runs the sources for a Watch. `make_sources` returns them by key; equal keys mean the same source.

    A source for which `is_held` is True, because it is not on the screen, keeps its position in every file
    but is not polled.
    """

    def __init__(
        self,
        make_sources: MakeSources,
        *,
        pace: Pace | None = None,
        is_held: Callable[[str], bool] = lambda key: False,
    ) -> None:
        self._make_sources = make_sources
        self._pace = pace or Pace()
        self._is_held = is_held
        self._readings: queue.SimpleQueue[tuple[threading.Event, Reading] | None] = queue.SimpleQueue()
        self._running: dict[str, _Running] = {}
        self._ending: list[threading.Thread] = []
        """Threads that were told to stop, but may still be in their last read or command."""
        self._is_stopped = False
        self._lock = threading.Lock()

    @property
    def keys(self) -> frozenset[str]:
        """Keys of the running sources."""
        with self._lock:
            return frozenset(self._running)

    def watch(self, watch: Watch) -> None:
        """Start and stop sources to match the Watch."""
        wanted = self._make_sources(watch)
        with self._lock:
            if self._is_stopped:
                return
            self._ending = [thread for thread in self._ending if thread.is_alive()]
            for key in [key for key in self._running if key not in wanted]:
                ended = self._running.pop(key)
                ended.stop.set()
                self._ending.append(ended.thread)
            for key, factory in wanted.items():
                if key not in self._running:
                    self._start(key, factory)
        self._pace.ring()

    def refresh_soon(self, is_wanted: Callable[[str], bool] = lambda key: True) -> None:
        """Make the sources with these keys poll at once instead of after their pause."""
        with self._lock:
            for key, running in self._running.items():
                if is_wanted(key):
                    running.wake.set()
        self._pace.ring()

    def readings(self, timeout_s: float) -> list[Reading]:
        """All readings since the last call; waits up to `timeout_s` for the first one, or for `interrupt`.

        Readings of stopped sources are dropped: a new source starts from the beginning.
        """
        found = self._hanging()
        try:
            item = self._readings.get(timeout=max(0.0, timeout_s))
            while True:
                if item is not None and not item[0].is_set():
                    found.append(item[1])
                item = self._readings.get_nowait()
        except queue.Empty:
            return found

    def _hanging(self) -> list[Reading]:
        """A reading for each source that waits for a hanging file system, once per hang."""
        found = []
        with self._lock:
            for key, running in self._running.items():
                path = self._pace.hanging_at(running.thread.ident or 0, HANG_S)
                if path is not None and path != running.hangs_at:
                    name, target = _names_of(key)
                    words = words_of_hang(path)
                    found.append(Reading(name, time.time(), HANG_S, None, words, target, is_caught_up=False))
                running.hangs_at = path
        return found

    def interrupt(self) -> None:
        """Make a waiting `readings` return at once."""
        self._readings.put(None)

    def stop(self) -> None:
        """Stop all sources. Waits for their threads, but not for a hanging command."""
        with self._lock:
            self._is_stopped = True
            running, self._running = list(self._running.values()), {}
        for item in running:
            item.stop.set()
        self._pace.ring()
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        for thread in (*self._ending, *(item.thread for item in running)):
            thread.join(max(0.0, deadline - time.monotonic()))
        self.interrupt()

    def _start(self, key: str, factory: SourceFactory) -> None:
        stop, wake = threading.Event(), threading.Event()
        thread = threading.Thread(
            target=self._run, args=(key, factory, stop, wake), name=f"source {key}", daemon=True
        )
        self._running[key] = _Running(thread, stop, wake)
        thread.start()

    def _run(self, key: str, factory: SourceFactory, stop: threading.Event, wake: threading.Event) -> None:
        def emit(reading: Reading) -> None:
            self._readings.put((stop, reading))

        try:
            source = factory()
            if isinstance(source, Source):
                source.run(emit, stop)
                return
            poll_loop(source, emit, stop, wake=wake, pace=self._pace, may_poll=lambda: not self._is_held(key))
        except Exception as problem:
            # Sources do not raise. If one does, the screen shows the error instead of stale data.
            name, target = _names_of(key)
            words = f"{type(problem).__name__}: {problem}"
            emit(Reading(name, time.time(), 0.0, None, words, target))


def _names_of(key: str) -> tuple[str, str | None]:
    """(name of the source, target) from a source's key."""
    name, _, target = key.partition(":")
    return name.partition(" ")[0], target or None
