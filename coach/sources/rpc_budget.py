"""What asking Slurm costs, and how much of it coach may spend: one budget for all that one coach asks.

A controller answers everybody in turn, and sites that limit rates do so per user, in RPCs, not in commands:
whoever polls too often makes his own `sbatch` wait. So every question passes here with its cost, before it is
asked, and there are three purses:

- Sources share the routine: each waits until there is room.
- A share of its own pays what a screen asks when it is opened, and the looks that follow an act: who has
  launched a job wants to see it now. A screen that asks much waits, and the queue is never older for it.
- What a person does (`sbatch`, `scancel`) never waits, and is counted. Only where the site gives little, or
  while coach is idle, do the sources then wait longer: there is no share.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath

from coach.model.politeness import Spending

ACTIVE_PER_MIN = 24.0
"""RPCs a minute while somebody works with coach."""
IDLE_PER_MIN = 12.0
"""RPCs a minute while nobody touches it."""
ACT_SHARE_PER_MIN = 8.0
"""This part of the former is kept for what a screen asks, and for the looks that follow what a person did: at
the own jobs, the nodes, and whether the job has started."""
ACT_S = 5.0
"""How long after it a look still follows an act."""
SITE_SHARE = 0.25
"""Of what a site that limits rates gives a user back per minute, coach takes at most this much."""
HELD_UP_S = 3.0
"""A question that waits for longer is held up by the budget: the screens then show what was spent."""
BURST = 8.0
"""One full picture of the cluster. Where the budget is less than this a minute, it can still be had at once,
and then is waited for."""

_WINDOW_S = 60.0
_LEAST_PER_MIN = 0.25
"""However little a site gives, the queue is looked at a few times an hour."""

_COSTS = {
    "sacct": 0,  # asks the database, not the controller
    "sacctmgr": 0,
    "sbatch": 1,
    "scancel": 2,
    "sdiag": 1,
    "sinfo": 2,
    "sprio": 3,
    "squeue": 2,
    "srun": 4,
    "sshare": 1,
    "sstat": 3,
}
_SCONTROL_SHOW_COSTS = {"config": 2, "node": 2, "nodes": 2, "job": 3, "jobs": 3}


def cost_of(argv: Sequence[str]) -> int:
    """RPCs to the controller that a command makes, as its own statistics count them; 0 for what is no client
    of Slurm."""
    if not argv:
        return 0
    program = PurePath(argv[0]).name
    words = argv[1:]
    if program == "scontrol":
        shown = words[words.index("show") + 1 :] if "show" in words else []  # before it may stand -M CLUSTER
        what = next((word for word in shown if not word.startswith("-")), "")
        return _SCONTROL_SHOW_COSTS.get(what, 1)
    if program == "squeue" and any(word in ("-u", "--me") or word.startswith("--user") for word in words):
        return 3
    if program == "sbatch" and "--test-only" in words:
        return 2
    return _COSTS.get(program, 0)


class RpcBudget:
    """Used by all threads of one coach.

    It is a bucket that fills up at the permitted rate. A full bucket and its refill could be spent within one
    minute; so what the last minute saw is limited as well.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._is_active = True
        self._site_per_min: float | None = None
        self._spent: deque[tuple[float, int]] = deque()
        self._shared: deque[tuple[float, int]] = deque()
        """Paid from the share."""
        self._acts: deque[tuple[float, int]] = deque()
        """What a person did, beside all purses."""
        self._act_s: float | None = None
        self._tokens = self._capacity
        self._filled_s = clock()
        self._waits: list[float] = []
        """Since when each question waits that does."""
        self._is_closed = False
        self._turn = threading.Lock()
        """Whoever waits longest is served first: a cheap question does not overtake a dear one for ever."""
        self._changed = threading.Condition()

    @property
    def limit_per_min(self) -> float:
        own = ACTIVE_PER_MIN if self._is_active else IDLE_PER_MIN
        return own if self._site_per_min is None else min(own, self._site_per_min)

    def set_active(self, is_active: bool) -> None:
        """Whether somebody works with coach."""
        with self._changed:
            self._fill()
            self._is_active = is_active
            self._tokens = min(self._tokens, self._capacity)
            self._changed.notify_all()

    def limit_by_site(self, refill_per_s: float | None) -> None:
        """What a site that limits rates gives back per second; None: it does not."""
        with self._changed:
            self._fill()
            share = None if refill_per_s is None else refill_per_s * 60.0 * SITE_SHARE
            self._site_per_min = None if share is None else max(_LEAST_PER_MIN, share)
            self._tokens = min(self._tokens, self._capacity)
            self._changed.notify_all()

    def acquire(self, cost: int) -> bool:
        """Wait until there is room, and take it. False: coach is closing, and nothing is to be asked any
        more."""
        if not cost:
            return not self._is_closed
        with self._waiting(), self._turn, self._changed:
            while not self._is_closed and (wait_s := self._wait_s(cost)) > 0:
                self._changed.wait(wait_s)
            if self._is_closed:
                return False
            if self._follows_act(cost):
                self._shared.append((self._clock(), cost))
            else:
                self._take(cost)
            return True

    def ask(self, cost: int) -> bool:
        """Wait until the share has room for a screen's own question, and take it. False: coach is closing.

        A question dearer than the share is asked when the share is full.
        """
        if not cost:
            return not self._is_closed
        with self._waiting(), self._changed:
            while not self._is_closed and (wait_s := self._share_wait_s(cost)) > 0:
                self._changed.wait(wait_s)
            if self._is_closed:
                return False
            if self._act_share:
                self._shared.append((self._clock(), cost))
                return True
        return self.acquire(cost)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """For as long as a question waits for its turn or for room."""
        since_s = self._clock()
        with self._changed:
            self._waits.append(since_s)
        try:
            yield
        finally:
            with self._changed:
                self._waits.remove(since_s)

    def charge(self, cost: int) -> None:
        """Count what a person does: it never waits."""
        with self._changed:
            self._fill()
            if cost and self._act_share:
                self._acts.append((self._clock(), cost))
            elif cost:
                self._take(cost)

    def note_act(self) -> None:
        """A person has just done something, and wants to see it: the next looks need not wait."""
        with self._changed:
            self._act_s = self._clock()
            self._changed.notify_all()

    def spending(self) -> Spending:
        with self._changed:
            self._fill()
            num_rpcs = sum(cost for _, cost in (*self._spent, *self._shared, *self._acts))
            held_s = self._clock() - min(self._waits, default=self._clock())
            return Spending(num_rpcs, self.limit_per_min, held_s >= HELD_UP_S)

    def close(self) -> None:
        """End all waiting: nothing more may be asked."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def _act_share(self) -> float:
        """Nobody acts while coach is idle; and a site that gives little leaves nothing to keep back."""
        return ACT_SHARE_PER_MIN if self.limit_per_min >= ACTIVE_PER_MIN else 0.0

    @property
    def _routine_per_min(self) -> float:
        return self.limit_per_min - self._act_share

    @property
    def _capacity(self) -> float:
        return max(self._routine_per_min, BURST)

    def _fill(self) -> None:
        now_s = self._clock()
        gained = max(0.0, now_s - self._filled_s) * self._routine_per_min / 60.0
        self._tokens, self._filled_s = min(self._capacity, self._tokens + gained), now_s
        for spent in (self._spent, self._shared, self._acts):
            while spent and spent[0][0] <= now_s - _WINDOW_S:
                spent.popleft()

    def _follows_act(self, cost: int) -> bool:
        """Whether a person has just done something, and the share for what follows has room."""
        if self._act_s is None or self._filled_s - self._act_s > ACT_S:
            return False
        return self._share_wait_s(cost) == 0 and self._act_share > 0

    def _share_wait_s(self, cost: int) -> float:
        """Seconds until the share has room; 0 now, and where there is no share."""
        self._fill()
        if not self._act_share:
            return 0.0
        excess = sum(spent for _, spent in self._shared) + min(cost, self._act_share) - self._act_share
        wait_s = 0.0
        for time_s, spent in self._shared:
            if excess <= 0:
                break
            excess -= spent
            wait_s = time_s + _WINDOW_S - self._filled_s
        return max(0.0, wait_s)

    def _take(self, cost: int) -> None:
        self._tokens -= cost
        self._spent.append((self._clock(), cost))

    def _wait_s(self, cost: int) -> float:
        """Seconds until there is room; 0 now. A question dearer than the budget is asked when the budget is
        full."""
        self._fill()
        if self._follows_act(cost):
            return 0.0
        wanted = min(float(cost), self._capacity)
        tokens_s = max(0.0, wanted - self._tokens) * 60.0 / self._routine_per_min
        excess = sum(spent for _, spent in self._spent) + wanted - self._capacity
        window_s = 0.0
        for time_s, spent in self._spent:
            if excess <= 0:
                break
            excess -= spent
            window_s = time_s + _WINDOW_S - self._filled_s
        return max(tokens_s, window_s)
