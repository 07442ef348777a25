"""When a key may change something: not before the screen that asks was painted, and not within 300 ms after.

A key that was typed for the screen before must not answer the question of this one (`1⏎⏎` in one packet).
What counts is when the key arrived, not when a busy program came round to it.
"""

from __future__ import annotations

GUARD_S = 0.3


class KeyGuard:
    """Closed until armed, then open for keys that arrive GUARD_S later."""

    def __init__(self) -> None:
        self._painted_time_s: float | None = None

    def arm(self, now_s: float) -> None:
        """The question has just been painted."""
        self._painted_time_s = now_s

    def close(self) -> None:
        """What was painted no longer stands."""
        self._painted_time_s = None

    def admits(self, key_time_s: float) -> bool:
        """Whether a key that arrived at this time answers what is on the screen."""
        return self._painted_time_s is not None and key_time_s - self._painted_time_s >= GUARD_S
