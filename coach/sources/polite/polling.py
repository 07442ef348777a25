"""The loop that every polling source runs in: ask, emit, wait; and the pace that all loops of one coach keep.

How often to ask is one decision, so it stands once: politely while answers come, slower when they come slowly
or when nobody looks, and ever more rarely while they fail. The loop asks again only after the last answer
came, so a slow controller never gets two questions at once. What is asked of Slurm has a budget of its own
(`rpc_budget`); what is asked of the file server is paced here.
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
"""Share of time that a source may spend asking: an answer that took 1 s is followed by a pause of 20 s at
least."""

FIRST_RETRY_S = 2.0
MAX_BACK_OFF_S = 60.0
"""However slow or dead a controller was, it is looked at again after this: nobody shall have to press a key
to see that it is well."""

IDLE_STRETCH = 3.0
"""Slurm is asked this much more rarely while nobody touches coach, or its terminal has not the focus."""

FILE_OPS_PER_MIN = 600.0
"""Questions to the file server a minute while somebody works, or a run is on the screen: of 64 ranks, too."""
IDLE_FILE_OPS_PER_MIN = 60.0
_HEADROOM = 0.7
"""Of these so much is planned for: files come and go between two looks."""

_WAKE_CHECK_S = 0.25


def next_pause(interval_s: float, duration_s: float, num_failures: int) -> float:
    """Seconds to wait after a poll that took `duration_s`; `num_failures` counts the failures in a row."""
    if num_failures:
        return min(FIRST_RETRY_S * 2.0 ** min(num_failures - 1, 10), max(MAX_BACK_OFF_S, interval_s))
    return max(interval_s, min(duration_s / MAX_SHARE, MAX_BACK_OFF_S))


@dataclass(slots=True)
class _Turn:
    """What the loop in one thread asked of the file server: since its last pause, and in the poll before
    that."""

    num_ops: int = 0
    last_num_ops: int = 0
    open_op: tuple[Path, float] | None = None
    """A question that has no answer yet: about which file, and when it was asked."""


class Pace:
    """Kept by all loops of one coach. Threads ask it how long to wait; the session tells it who looks."""

    def __init__(self) -> None:
        self._attention = Attention()
        self._num_returns = 0
        self._turns: dict[int, _Turn] = {}
        self._lock = threading.Lock()

    @property
    def attention(self) -> Attention:
        return self._attention

    def attend(self, attention: Attention) -> None:
        self._attention = attention

    @property
    def num_returns(self) -> int:
        """How often what had failed was found again."""
        return self._num_returns

    def end_back_off(self) -> None:
        """What failed is there again: whoever waits after a failure looks at once."""
        self._num_returns += 1

    def count_file_op(self, path: Path | None) -> None:
        """Called for every question to the file server, in the thread that asks it; with None when it was
        answered."""
        turn = self._turns.get(threading.get_ident())
        if turn is not None:
            turn.num_ops += path is not None
            turn.open_op = (path, time.monotonic()) if path is not None else None

    def hanging_at(self, thread_id: int, limit_s: float) -> Path | None:
        """The file about which a thread has been asking for longer than `limit_s`, without an answer."""
        turn = self._turns.get(thread_id)
        asked = turn.open_op if turn is not None else None
        return asked[0] if asked is not None and time.monotonic() - asked[1] > limit_s else None

    def begin(self) -> None:
        """A loop begins in this thread."""
        with self._lock:
            self._turns[threading.get_ident()] = _Turn()

    def end(self) -> None:
        """The loop of this thread ends: its share is for the others."""
        with self._lock:
            self._turns.pop(threading.get_ident(), None)

    def rest(self) -> None:
        """The loop of this thread has looked once, and will look again."""
        turn = self._turns.get(threading.get_ident())
        if turn is not None:
            turn.last_num_ops, turn.num_ops = turn.num_ops, 0

    def pause_s(self, interval_s: float, duration_s: float, num_failures: int) -> float:
        """How long the loop of this thread has to wait after its last look, as things are now.

        Looks at files are spread so that all together stay in the budget, and what is dear to look at waits
        longer than what is cheap: by the square root of what it costs, which makes the sum of all waiting the
        least.
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
    """What may be asked of the file server."""
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
    """Poll until `stop` is set, which ends a pause at once. Setting `wake` ends the pause too: the next poll
    comes soon.

    A reading that is not caught up is followed by the next bite without a pause. A poll that raises becomes a
    Reading with an error. Nothing is asked while `may_poll` says no, or nobody looks any more.
    """
    pace = pace or Pace()
    num_failures = 0
    pace.begin()
    try:
        while not stop.is_set():
            while not may_poll() or pace.attention.is_asleep:
                pace.rest()
                if stop.wait(_WAKE_CHECK_S):
                    return
            if wake is not None:
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
        # A thread that dies would freeze its part of the screen without a word; a flaw in a parser must be
        # seen instead.
        yield Reading(source.name, time.time(), 0.0, None, error=f"{type(problem).__name__}: {problem}")


def _pause(
    source: PollingSource,
    duration_s: float,
    num_failures: int,
    pace: Pace,
    stop: threading.Event,
    wake: threading.Event | None,
) -> None:
    """Wait; somebody who comes back meanwhile is not made to wait as long as nobody was. After a failure the
    pause ends when what failed is there again."""
    pace.rest()
    start_s, attention, num_returns = time.monotonic(), pace.attention, pace.num_returns
    pause_s = pace.pause_s(source.interval_s, duration_s, num_failures)
    # Nothing waits for several events at once; `stop` is the one that must be prompt, the others are looked
    # at often enough.
    while (left_s := start_s + pause_s - time.monotonic()) > 0 and not (wake is not None and wake.is_set()):
        if stop.wait(min(left_s, _WAKE_CHECK_S)):
            return
        if num_failures and pace.num_returns != num_returns:
            return
        if pace.attention != attention:
            attention = pace.attention
            pause_s = pace.pause_s(source.interval_s, duration_s, num_failures)
