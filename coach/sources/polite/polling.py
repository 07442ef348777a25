"""The loop of every polling source (poll, emit, wait), and the common pace of all loops of one coach.

How often to ask is decided only here: at the usual interval while answers come; less often if they come
slowly or nobody looks; and ever less often while they fail. The loop polls again only after the last answer,
so a slow controller never has two requests of one source. Requests to Slurm have their own budget
(`rpc_budget`); requests to the file server are paced here.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from coach.model.politeness import Attention
from coach.model.reading import Reading
from coach.sources.base import Emit, PollingSource

MAX_SHARE = 0.05
"""Largest fraction of time that a source may spend asking: after an answer that took 1 s it pauses at least
20 s."""

FIRST_RETRY_S = 2.0
MAX_BACK_OFF_S = 60.0
"""Longest pause, however slow or dead a controller was: the user shall not need to press a key to see that it
has recovered."""

IDLE_STRETCH = 3.0
"""Factor on the pauses between requests to Slurm while the user is idle, or the terminal has no focus."""

FILE_OPS_PER_MIN = 600.0
"""Requests to the file server per minute while the user is active or a run is on the screen, even one of 64
ranks."""
IDLE_FILE_OPS_PER_MIN = 60.0
_HEADROOM = 0.7
"""Fraction of this budget that is planned for, because the number of files changes between two looks."""


def next_pause(interval_s: float, duration_s: float, num_failures: int) -> float:
    """Seconds to wait after a poll that took `duration_s`; `num_failures` counts the failures in a row."""
    if num_failures:
        return min(FIRST_RETRY_S * 2.0 ** min(num_failures - 1, 10), max(MAX_BACK_OFF_S, interval_s))
    return max(interval_s, min(duration_s / MAX_SHARE, MAX_BACK_OFF_S))


@dataclass(slots=True)
class _Turn:
    """Requests of one thread's loop to the file server: since its last pause, and in the poll before that."""

    num_ops: int = 0
    last_num_ops: int = 0
    open_op: tuple[Path, float] | None = None
    """(file, start time) of a request that has no answer yet."""


class Pace:
    """The common pace of all loops of one coach. Threads ask it how long to wait, and wait with it; the
    session sets the user's attention."""

    def __init__(self) -> None:
        self._attention = Attention()
        self._num_returns = 0
        self._turns: dict[int, _Turn] = {}
        self._lock = threading.Lock()
        self._rung = threading.Condition(self._lock)

    @property
    def attention(self) -> Attention:
        return self._attention

    def attend(self, attention: Attention) -> None:
        if attention != self._attention:
            self._attention = attention
            self.ring()

    @property
    def num_returns(self) -> int:
        """Number of times that a failed server was found again."""
        return self._num_returns

    def end_back_off(self) -> None:
        """End the pauses after failures, because the server is back."""
        self._num_returns += 1
        self.ring()

    def ring(self) -> None:
        """Make every waiting loop check its condition. Call it after a change that a loop may wait for."""
        with self._rung:
            self._rung.notify_all()

    def wait(self, is_over: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Wait until `is_over`, which is asked now and at each `ring`, or until the timeout.

        A loop that instead looked four times a second would cost 0.7 CPU s an hour, and there is one for each
        source of each job.
        """
        with self._rung:
            self._rung.wait_for(is_over, timeout_s)

    def count_file_op(self, path: Path | None) -> None:
        """Called for each request to the file server, in its thread; with None when it was answered."""
        turn = self._turns.get(threading.get_ident())
        if turn is not None:
            turn.num_ops += path is not None
            turn.open_op = (path, time.monotonic()) if path is not None else None

    def hanging_at(self, thread_id: int, limit_s: float) -> Path | None:
        """The file for which a thread has waited longer than `limit_s`; None if it does not wait."""
        turn = self._turns.get(thread_id)
        asked = turn.open_op if turn is not None else None
        return asked[0] if asked is not None and time.monotonic() - asked[1] > limit_s else None

    def begin(self) -> None:
        """Register this thread's loop."""
        with self._lock:
            self._turns[threading.get_ident()] = _Turn()

    def end(self) -> None:
        """Remove this thread's loop: its share is available to the others."""
        with self._lock:
            self._turns.pop(threading.get_ident(), None)

    def rest(self) -> None:
        """End a poll of this thread's loop."""
        turn = self._turns.get(threading.get_ident())
        if turn is not None:
            turn.last_num_ops, turn.num_ops = turn.num_ops, 0

    def pause_s(self, interval_s: float, duration_s: float, num_failures: int) -> float:
        """Seconds that the loop of this thread must wait after its last poll, in the current state.

        Polls of files are spread so that all loops together stay within the budget. A loop with expensive
        polls waits longer than one with cheap polls, in proportion to the square root of the cost: this
        minimizes the sum of all pauses.
        """
        pause_s = next_pause(interval_s, duration_s, num_failures)
        attention = self._attention
        with self._lock:
            turn = self._turns.get(threading.get_ident())
            num_ops = turn.last_num_ops if turn is not None else 0
            roots = sum(math.sqrt(each.last_num_ops) for each in self._turns.values())
        if not num_ops:
            return pause_s if attention.is_active else max(pause_s, interval_s * IDLE_STRETCH)
        per_s = file_ops_per_min(attention) * _HEADROOM / 60.0
        return max(pause_s, math.sqrt(num_ops) * roots / per_s)


def file_ops_per_min(attention: Attention) -> float:
    """Budget of requests to the file server, per minute."""
    if attention.is_run_open:
        return FILE_OPS_PER_MIN if attention.is_focused else FILE_OPS_PER_MIN / 2
    return FILE_OPS_PER_MIN if attention.is_active else IDLE_FILE_OPS_PER_MIN


def poll_loop(
    source: PollingSource,
    emit: Emit,
    stop: threading.Event,
    *,
    wake: threading.Event | None = None,
    pace: Pace | None = None,
    may_poll: Callable[[], bool] = lambda: True,
) -> None:
    """Poll until `stop` is set. Setting `wake` ends a pause: the next poll follows soon. A waiting loop sees
    that `stop`, `wake` or the result of `may_poll` has changed when its pace rings.

    After a reading that is not caught up, the next poll follows without a pause. A poll that raises becomes a
    Reading with an error. The loop does not poll while `may_poll` returns False, or while nobody looks.
    """
    pace, wake = pace or Pace(), wake or threading.Event()
    num_failures = 0

    def is_allowed() -> bool:
        return may_poll() and not pace.attention.is_asleep

    pace.begin()
    try:
        while not stop.is_set():
            if not is_allowed():
                pace.rest()
                pace.wait(lambda: stop.is_set() or is_allowed())
                continue
            wake.clear()
            has_failed, is_caught_up, duration_s = False, True, 0.0
            for reading in _readings(source):
                has_failed = has_failed or reading.error is not None
                is_caught_up = is_caught_up and reading.is_caught_up
                duration_s = max(duration_s, reading.duration_s)
                emit(reading)
                if stop.is_set():
                    return
            num_failures = num_failures + 1 if has_failed else 0
            if has_failed or is_caught_up:
                _pause(source, duration_s, num_failures, pace, stop, wake)
    finally:
        pace.end()


def _readings(source: PollingSource) -> Iterator[Reading]:
    try:
        yield from source.poll()
    except Exception as problem:
        # A thread that died would freeze its part of the screen silently, but a defect in a parser must be
        # visible.
        yield Reading(source.name, time.time(), 0.0, None, error=f"{type(problem).__name__}: {problem}")


def _pause(
    source: PollingSource,
    duration_s: float,
    num_failures: int,
    pace: Pace,
    stop: threading.Event,
    wake: threading.Event,
) -> None:
    """Wait until the next poll is due. The pause is shortened if the user returns, and ends after a failure
    as soon as the failed server is back."""
    pace.rest()
    start_s, attention, num_returns = time.monotonic(), pace.attention, pace.num_returns
    pause_s = pace.pause_s(source.interval_s, duration_s, num_failures)

    def is_ended() -> bool:
        has_returned = num_failures > 0 and pace.num_returns != num_returns
        return stop.is_set() or wake.is_set() or has_returned

    def is_over() -> bool:
        return is_ended() or pace.attention != attention

    while (left_s := start_s + pause_s - time.monotonic()) > 0 and not is_ended():
        pace.wait(is_over, left_s)
        if pace.attention != attention:
            attention = pace.attention
            pause_s = pace.pause_s(source.interval_s, duration_s, num_failures)
