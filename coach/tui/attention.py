"""Tracks if the user is looking: the time of the last key, and the focus of the terminal.

It is separate from the app so that a test can set the idle time. A terminal that does not report its focus
counts as focused.
"""

from __future__ import annotations

from collections.abc import Callable

from coach.model.politeness import Attention
from coach.tui.key_guard import StrayLine as StrayLine
from coach.tui.key_guard import TypedOn as TypedOn
from coach.tui.ports import Session


class UserAttention:
    """Receives keys and focus changes, and reports idle time and focus to the session."""

    def __init__(self, session: Session, clock: Callable[[], float]) -> None:
        self._session = session
        self._clock = clock
        self._key_s = clock()
        self._is_focused = True
        self._is_run_open = False
        self._attention = Attention()

    @property
    def asleep_s(self) -> float | None:
        """Seconds without a key, if coach has stopped asking Slurm for that reason; else None."""
        return self._clock() - self._key_s if self._attention.is_asleep else None

    def key(self) -> bool:
        """Note a key. Returns True if it only woke coach up: the data on the screen were old, so the key must
        do nothing else."""
        was_asleep = self._attention.is_asleep
        was_active = self._attention.is_active
        self._key_s = self._clock()
        if not was_active:
            self.tick()
        return was_asleep

    def focus(self, is_focused: bool) -> None:
        self._is_focused = is_focused
        self.tick()

    def follow(self, is_run_open: bool) -> None:
        """Note that another screen is on top. `is_run_open`: it shows a run or job."""
        if is_run_open != self._is_run_open:
            self._is_run_open = is_run_open
            self.tick()

    def tick(self) -> None:
        """Report to the session again. Called at intervals, because idle time also grows without events."""
        self._attention = self._session.attend(
            self._clock() - self._key_s, is_focused=self._is_focused, is_run_open=self._is_run_open
        )
