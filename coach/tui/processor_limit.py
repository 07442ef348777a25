"""The processor time that this login node allows a process (RLIMIT_CPU).

The kernel kills a process that uses it up, without a message. Before that, coach stops reading and judging
jobs so that the screens last longer, and then ends with a message.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from enum import IntEnum

from coach.render.text import age

_LITTLE_SHARE, _NONE_SHARE = 0.2, 0.05
_LITTLE_S, _NONE_S = 6.0, 3.0
"""Least processor time to keep, in seconds, where the share of a small limit would be less: between two
checks one second apart, threads on several cores use more than a second, and leaving takes another."""


class Left(IntEnum):
    """How much processor time is left."""

    ENOUGH = 0
    LITTLE = 1
    """Too little to judge jobs."""
    NONE = 2
    """Too little to stay open."""


def soft_limit_s() -> float | None:
    """Seconds of processor time after which the kernel signals this process; None if there is no limit."""
    limit = resource.getrlimit(resource.RLIMIT_CPU)[0]
    return None if limit == resource.RLIM_INFINITY else float(limit)


class ProcessorLimit:
    """Compares the limit with the processor time of this process and all its threads."""

    def __init__(self, limit_s: float | None, used_s: Callable[[], float] = time.process_time) -> None:
        self.limit_s = limit_s
        self._used_s = used_s

    @property
    def words(self) -> str:
        """The reason why coach ends, in words."""
        return (
            f"this machine ends programs after {age(self.limit_s)} of processor time: nearly all is used up"
        )

    def left(self) -> Left:
        """How much is left. Called once a second; it costs one system call."""
        if self.limit_s is None:
            return Left.ENOUGH
        left_s = self.limit_s - self._used_s()
        is_little = left_s <= max(_LITTLE_S, _LITTLE_SHARE * self.limit_s)
        return Left(is_little + (left_s <= max(_NONE_S, _NONE_SHARE * self.limit_s)))
