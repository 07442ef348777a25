"""One long-lived thread per source, one queue for all.

What is followed is a value, the Watch. When it changes, sources that are no longer wanted stop and new ones
start; the others go on undisturbed, with their place in every file.
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
from coach.sources.machine.mount_point import words_of_hang
from coach.sources.polite.polling import Pace, poll_loop

JOIN_TIMEOUT_S = 0.5
"""A source may hang in a command for longer than anybody wants to wait; its thread is a daemon and ends after
the command."""

HANG_S = 10.0
"""A file server that has not answered one question for so long hangs: nobody can break off the call, so the
screen says it meanwhile."""

SourceFactory = Callable[[], PollingSource | Source]
MakeSources = Callable[[Watch], Mapping[str, SourceFactory]]


@dataclass(slots=True)
class _Running:
    thread: threading.Thread
    stop: threading.Event
    wake: threading.Event
    hangs_at: Path | None = None
    """The file whose file system was said to hang."""


class Poller:
    """Runs the sources that a Watch asks for. `make_sources` names them: the same key means the same source.

    A source that `is_held` is kept with its place in every file, but not asked: it is not on the screen.
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
        """Threads that were told to stop and may be in a last read or command."""
        self._is_stopped = False
        self._lock = threading.Lock()

    @property
    def keys(self) -> frozenset[str]:
        """Keys of the sources that run now."""
        with self._lock:
            return frozenset(self._running)

    def watch(self, watch: Watch) -> None:
        """Start and stop sources so that these are followed."""
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

    def refresh_soon(self, is_wanted: Callable[[str], bool] = lambda key: True) -> None:
        """Let the sources with these keys look at once, not only when their pause is over."""
        with self._lock:
            for key, running in self._running.items():
                if is_wanted(key):
                    running.wake.set()

    def readings(self, timeout_s: float) -> list[Reading]:
        """All readings since the last call; waits up to `timeout_s` for a first one, or for `interrupt`.

        What a source said before it was stopped is left out: its successor begins again.
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
        """What the sources would say that wait for a file system, each once."""
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
        """Let a waiting `readings` return at once."""
        self._readings.put(None)

    def stop(self) -> None:
        """Stop all sources and wait for their threads, but not for a command that hangs."""
        with self._lock:
            self._is_stopped = True
            running, self._running = list(self._running.values()), {}
        for item in running:
            item.stop.set()
            item.wake.set()
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
            # Sources do not raise; if one does, its part of the screen says so instead of standing still.
            name, target = _names_of(key)
            words = f"{type(problem).__name__}: {problem}"
            emit(Reading(name, time.time(), 0.0, None, words, target))


def _names_of(key: str) -> tuple[str, str | None]:
    """The name of the source that a key stands for, and its target."""
    name, _, target = key.partition(":")
    return name.partition(" ")[0], target or None
