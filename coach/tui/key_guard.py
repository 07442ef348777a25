"""Decides if a key may change something: it must be an answer to what the user has seen.

A key typed for the previous screen must not answer this screen's question (`1⏎⏎` in one packet), and what was
typed on after a key that did nothing was meant for something else. The time of a key is its arrival, even if
a busy program handles it later.
"""

from __future__ import annotations

GUARD_S = 0.4


class KeyGuard:
    """Closed until armed, then open for keys that arrive GUARD_S later.

    A key that comes too early starts the wait again: the user is still typing ahead.
    """

    def __init__(self) -> None:
        self._painted_time_s: float | None = None

    def arm(self, now_s: float) -> None:
        """Start the wait: the question has just been painted."""
        self._painted_time_s = now_s

    def close(self) -> None:
        """Admit no key: the painted question is no longer valid."""
        self._painted_time_s = None

    def press(self, key_time_s: float) -> None:
        """A key arrived, whatever it does."""
        if self._painted_time_s is not None and not self.admits(key_time_s):
            self._painted_time_s = max(self._painted_time_s, key_time_s)

    def admits(self, key_time_s: float) -> bool:
        """True if a key that arrived at this time answers the painted question."""
        return self._painted_time_s is not None and key_time_s - self._painted_time_s >= GUARD_S


class TypedOn:
    """Tells if a key was typed on without a pause after a key that did nothing."""

    def __init__(self) -> None:
        self._last_time_s: float | None = None
        self.is_on = False
        """True while the key that is being handled was typed on."""

    def press(self, key_time_s: float) -> None:
        """A key arrived, whatever it does."""
        last_s = self._last_time_s
        self.is_on = last_s is not None and key_time_s - last_s < GUARD_S
        self._last_time_s = key_time_s if self.is_on else None

    def refuse(self, key_time_s: float) -> None:
        """The key that arrived at this time did nothing."""
        self._last_time_s = key_time_s


class StrayLine:
    """What is typed after `/` where that does nothing: a line of text, up to Enter or Esc, and no keys."""

    def __init__(self) -> None:
        self._text: str | None = None

    def begin(self) -> None:
        self._text = ""

    def swallows(self, key: str, character: str | None) -> bool:
        """True if this key belongs to the line. Enter, Esc and every key that types nothing end the line; of
        these, only Enter and Esc belong to it."""
        if self._text is None:
            return False
        if character is not None:
            self._text += character
        elif key == "backspace":
            self._text = self._text[:-1]
        else:
            self._text = None
            return key in ("enter", "escape")
        return True

    @property
    def words(self) -> str:
        """The note while the line is typed; empty without one."""
        return (
            "" if self._text is None else f"nothing to search here; text up to Enter is no key: {self._text}"
        )
