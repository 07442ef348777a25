"""Decides if a key may change something: only 300 ms or more after the question was painted.

A key typed for the previous screen must not answer this screen's question (`1⏎⏎` in one packet). The time of
a key is its arrival, even if a busy program handles it later.
"""

from __future__ import annotations

GUARD_S = 0.3


class KeyGuard:
    """Closed until armed, then open for keys that arrive GUARD_S later."""

    def __init__(self) -> None:
        self._painted_time_s: float | None = None

    def arm(self, now_s: float) -> None:
        """Start the wait: the question has just been painted."""
        self._painted_time_s = now_s

    def close(self) -> None:
        """Admit no key: the painted question is no longer valid."""
        self._painted_time_s = None

    def admits(self, key_time_s: float) -> bool:
        """True if a key that arrived at this time answers the painted question."""
        return self._painted_time_s is not None and key_time_s - self._painted_time_s >= GUARD_S
