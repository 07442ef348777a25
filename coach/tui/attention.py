"""Whether somebody looks: when the last key was pressed, and whether the terminal has the focus.

Apart from the app, so that an hour without a key is a number in a test. Terminals that do not tell of their
focus are taken to have it.
"""

from __future__ import annotations

from collections.abc import Callable

from coach.model.politeness import Attention
from coach.tui.ports import Session


class UserAttention:
    """Told of keys and focus; tells the session."""

    def __init__(self, session: Session, clock: Callable[[], float]) -> None:
        self._session = session
        self._clock = clock
        self._key_s = clock()
        self._is_focused = True
        self._is_run_open = False
        self._attention = Attention()

    @property
    def asleep_s(self) -> float | None:
        """How long nobody has pressed a key, once nothing is asked any more for that; None while coach
        asks."""
        return self._clock() - self._key_s if self._attention.is_asleep else None

    def key(self) -> bool:
        """A key was pressed. Returns whether it only woke coach up: what is on the screen was old, so nothing
        is done by it."""
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
        """A screen came to the top."""
        if is_run_open != self._is_run_open:
            self._is_run_open = is_run_open
            self.tick()

    def tick(self) -> None:
        """Called now and then: time passes without a key, too."""
        self._attention = self._session.attend(
            self._clock() - self._key_s, is_focused=self._is_focused, is_run_open=self._is_run_open
        )
