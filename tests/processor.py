"""The speed of this processor, relative to the one on which limits in processor seconds were set.

The same work takes two and a half times as long on some machines, and in some hours of a shared one.
"""

from __future__ import annotations

import time

_NUM_ADDITIONS = 5_000_000
_REFERENCE_S = 0.3
"""What the additions took on the machine of the limits."""


def slowness() -> float:
    """Seconds here for a second there; at least 1. The best of three, so that other programs count little."""
    least_s = min(_additions_s() for _ in range(3))
    return max(1.0, least_s / _REFERENCE_S)


def _additions_s() -> float:
    start_s, total = time.thread_time(), 0
    for number in range(_NUM_ADDITIONS):
        total += number
    return time.thread_time() - start_s
