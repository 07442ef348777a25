"""The loop that every polling source runs in: ask, emit, wait.

How often to ask is one decision, so it stands once: politely while answers come, slower when they come slowly, and ever more
rarely while they fail. The loop asks again only after the last answer came, so a slow controller never gets two questions at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from coach.model.reading import Reading
from coach.sources.base import Emit, PollingSource

MAX_SHARE = 0.05
"""Share of time that a source may spend asking: an answer that took 1 s is followed by a pause of 20 s at least."""

FIRST_RETRY_S = 2.0
MAX_RETRY_S = 60.0

_WAKE_CHECK_S = 0.25


def next_pause(interval_s: float, duration_s: float, num_failures: int) -> float:
    """Seconds to wait after a poll that took `duration_s`; `num_failures` counts the failures in a row."""
    if num_failures:
        return min(FIRST_RETRY_S * 2.0 ** min(num_failures - 1, 10), max(MAX_RETRY_S, interval_s))
    return max(interval_s, duration_s / MAX_SHARE)


def poll_loop(
    source: PollingSource, emit: Emit, stop: threading.Event, *, wake: threading.Event | None = None
) -> None:
    """Poll until `stop` is set, which ends a pause at once. Setting `wake` ends the pause too: the next poll comes soon.

    A reading that is not caught up is followed by the next bite without a pause. A poll that raises becomes a Reading with an error.
    """
    num_failures = 0
    while not stop.is_set():
        if wake is not None:
            wake.clear()
        has_failed, is_caught_up = False, True
        start = time.monotonic()
        for reading in _readings(source):
            has_failed = has_failed or reading.error is not None
            is_caught_up = is_caught_up and reading.is_caught_up
            emit(reading)
            if stop.is_set():
                return
        duration_s = time.monotonic() - start
        num_failures = num_failures + 1 if has_failed else 0
        if has_failed or is_caught_up:
            _pause(next_pause(source.interval_s, duration_s, num_failures), stop, wake)


def _readings(source: PollingSource) -> Iterator[Reading]:
    try:
        yield from source.poll()
    except Exception as problem:
        # A thread that dies would freeze its part of the screen without a word; a flaw in a parser must be seen instead.
        yield Reading(source.name, time.time(), 0.0, None, error=f"{type(problem).__name__}: {problem}")


def _pause(seconds: float, stop: threading.Event, wake: threading.Event | None) -> None:
    if wake is None:
        stop.wait(seconds)
        return
    # Nothing waits for two events at once; `stop` is the one that must be prompt, `wake` is looked at often enough.
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and not wake.is_set():
        if stop.wait(min(left, _WAKE_CHECK_S)):
            return
