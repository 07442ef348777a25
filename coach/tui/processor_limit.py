"""The processor time that this login node allows a process (RLIMIT_CPU).

Whoever uses it up is killed by the kernel without a word. So coach stops reading and judging jobs while
enough is left to look at them, and leaves in words before the end.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from enum import IntEnum

from coach.tui.render.text import age

_LITTLE_SHARE, _NONE_SHARE = 0.2, 0.05
_LITTLE_S, _NONE_S = 6.0, 3.0
"""Of a small limit more than the share is kept: in the second between two looks, threads on several cores use
more than a second, and leaving takes one itself."""


class Left(IntEnum):
    """How much of it is left."""

    ENOUGH = 0
    LITTLE = 1
    """Too little to judge jobs."""
    NONE = 2
    """Too little to go on."""


def soft_limit_s() -> float | None:
    """Seconds of processor time after which this process is signalled; None: there is no limit."""
    limit = resource.getrlimit(resource.RLIMIT_CPU)[0]
    return None if limit == resource.RLIM_INFINITY else float(limit)


class ProcessorLimit:
    """Compares the limit with the processor time of this process, its threads included."""

    def __init__(self, limit_s: float | None, used_s: Callable[[], float] = time.process_time) -> None:
        self.limit_s = limit_s
        self._used_s = used_s

    @property
    def words(self) -> str:
        """Why coach ends."""
        return (
            f"this machine ends programs after {age(self.limit_s)} of processor time: nearly all is used up"
        )

    def left(self) -> Left:
        """Asked once a second: it costs one system call."""
        if self.limit_s is None:
            return Left.ENOUGH
        left_s = self.limit_s - self._used_s()
        is_little = left_s <= max(_LITTLE_S, _LITTLE_SHARE * self.limit_s)
        return Left(is_little + (left_s <= max(_NONE_S, _NONE_SHARE * self.limit_s)))
