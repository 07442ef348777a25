"""One budget for all requests of a coach to Slurm: their cost, and how much may be spent.

A controller serves all users in turn, and sites limit the rate per user in RPCs, not in commands: a user who
polls too often delays their own `sbatch`. So every request passes here with its cost before it is made. There
are three accounts:

- Routine: sources share it, and each waits until it has room.
- The share for acts: it pays for requests of a screen that opens, and for the looks that follow an act,
  because a user who has launched a job wants to see it now. A screen with many requests waits; the queue is
  not delayed.
- Acts of the user (`sbatch`, `scancel`): they never wait, but are counted. If the site's limit is low, or
  coach is idle, there is no share for acts, and the sources wait longer instead.
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
"""RPCs per minute while the user is active."""
IDLE_PER_MIN = 12.0
"""RPCs per minute while the user is not."""
ACT_SHARE_PER_MIN = 8.0
"""Part of ACTIVE_PER_MIN that is reserved for requests of screens, and for the looks that follow an act: they
ask for the user's jobs and the nodes, and show if the job has started."""
ACT_S = 5.0
"""Seconds after an act in which a look counts as following it."""
SITE_SHARE = 0.25
"""coach uses at most this fraction of the rate that a site gives a user."""
HELD_UP_S = 3.0
"""If a request waits longer than this, the budget holds it up, and the screens show the spending."""
BURST = 8.0
"""RPCs for one full picture of the cluster. It is available at once even if the budget per minute is smaller,
and must then be regained."""

_WINDOW_S = 60.0
_LEAST_PER_MIN = 0.25
"""Even under a very low limit of the site, the queue is read a few times per hour."""

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
_GLANCE_S = 0.5
"""Seconds after which a waiting request looks whether somebody still waits for it."""
_SCONTROL_SHOW_COSTS = {"config": 2, "node": 2, "nodes": 2, "job": 3, "jobs": 3}


def cost_of(argv: Sequence[str]) -> int:
    """RPCs to the controller that a command makes, as counted by its own statistics (sdiag); 0 for a program
    that is not a Slurm client."""
    if not argv:
        return 0
    program = PurePath(argv[0]).name
    words = argv[1:]
    if program == "scontrol":
        shown = words[words.index("show") + 1 :] if "show" in words else []  # -M CLUSTER may precede `show`
        what = next((word for word in shown if not word.startswith("-")), "")
        return _SCONTROL_SHOW_COSTS.get(what, 1)
    if program == "squeue" and any(word in ("-u", "--me") or word.startswith("--user") for word in words):
        return 3
    if program == "sbatch" and "--test-only" in words:
        return 2
    return _COSTS.get(program, 0)


class RpcBudget:
    """The budget of one coach; thread-safe.

    It is a token bucket that fills at the permitted rate. A full bucket and its refill could be spent within
    one minute, so the spending of the last minute is limited too.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._is_active = True
        self._site_per_min: float | None = None
        self._spent: deque[tuple[float, int]] = deque()
        self._shared: deque[tuple[float, int]] = deque()
        """(time, cost) of requests paid from the share for acts."""
        self._acts: deque[tuple[float, int]] = deque()
        """(time, cost) of the user's acts, outside all accounts."""
        self._act_s: float | None = None
        self._tokens = self._capacity
        self._filled_s = clock()
        self._waits: list[float] = []
        """Start time of each waiting request."""
        self._is_closed = False
        self._turn = threading.Lock()
        """The longest waiting request is served first: cheap requests must not overtake an expensive one for
        ever."""
        self._changed = threading.Condition()

    @property
    def limit_per_min(self) -> float:
        own = ACTIVE_PER_MIN if self._is_active else IDLE_PER_MIN
        return own if self._site_per_min is None else min(own, self._site_per_min)

    def set_active(self, is_active: bool) -> None:
        """Set whether the user is active."""
        with self._changed:
            self._fill()
            self._is_active = is_active
            self._tokens = min(self._tokens, self._capacity)
            self._changed.notify_all()

    def limit_by_site(self, refill_per_s: float | None) -> None:
        """Set the rate at which the site refills a user's RPCs, per second; None: the site has no limit."""
        with self._changed:
            self._fill()
            share = None if refill_per_s is None else refill_per_s * 60.0 * SITE_SHARE
            self._site_per_min = None if share is None else max(_LEAST_PER_MIN, share)
            self._tokens = min(self._tokens, self._capacity)
            self._changed.notify_all()

    def acquire(self, cost: int, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Wait until there is room, and spend it. Returns False if coach is closing, or if `is_over` became
        true: the request must not be made."""
        if not cost:
            return not self._is_closed
        with self._waiting(), self._turn, self._changed:
            while not (self._is_closed or is_over()) and (wait_s := self._wait_s(cost)) > 0:
                self._changed.wait(min(wait_s, _GLANCE_S))
            if self._is_closed or is_over():
                return False
            if self._follows_act(cost):
                self._shared.append((self._clock(), cost))
            else:
                self._take(cost)
            return True

    def ask(self, cost: int, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the share for acts has room for a screen's request, and spend it. Returns False if coach
        is closing, or if `is_over` became true.

        A request that costs more than the share is made when the share is full.
        """
        if not cost:
            return not self._is_closed
        with self._waiting(), self._changed:
            while not (self._is_closed or is_over()) and (wait_s := self._share_wait_s(cost)) > 0:
                self._changed.wait(min(wait_s, _GLANCE_S))
            if self._is_closed or is_over():
                return False
            if self._act_share:
                self._shared.append((self._clock(), cost))
                return True
        return self.acquire(cost, is_over)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Record a request as waiting for its turn or for room."""
        since_s = self._clock()
        with self._changed:
            self._waits.append(since_s)
        try:
            yield
        finally:
            with self._changed:
                self._waits.remove(since_s)

    def charge(self, cost: int) -> None:
        """Count an act of the user; it never waits."""
        with self._changed:
            self._fill()
            if cost and self._act_share:
                self._acts.append((self._clock(), cost))
            elif cost:
                self._take(cost)

    def note_act(self) -> None:
        """Record that the user has just acted: the looks that follow need not wait."""
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
        """End all waiting; no further request may be made."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def _act_share(self) -> float:
        """Size of the share for acts; 0 while coach is idle, and if the site's limit is low."""
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
        """True if the user has just acted, and the share for acts has room."""
        if self._act_s is None or self._filled_s - self._act_s > ACT_S:
            return False
        return self._share_wait_s(cost) == 0 and self._act_share > 0

    def _share_wait_s(self, cost: int) -> float:
        """Seconds until the share for acts has room; 0 if it has, or if there is no share."""
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
        """Seconds until there is room; 0 if there is. A request that costs more than the budget waits until
        the budget is full."""
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
