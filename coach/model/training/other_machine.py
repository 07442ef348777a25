"""Wording for a run on another machine, the same in screens and commands."""

from __future__ import annotations

import math


def place(host: str | None) -> str:
    """Text in place of the state, which cannot be seen from here."""
    return f"on {host or 'another machine'}"


def last_word(state: str | None, age: str | None) -> str:
    """The last known state and why there is no newer one. `age` is a formatted duration: `3 min`."""
    as_of = f" {age} ago" if age else ""
    return f"{state or 'nothing reported yet'}{as_of}, not visible from here"


def told(host: str | None, state: str | None, age: str | None) -> str:
    """The long form: `on login2, not visible from here: RUNNING 3 min ago`."""
    as_of = f" {age} ago" if age else ""
    return f"{place(host)}, not visible from here: {state or 'nothing reported yet'}{as_of}"


def rough_age(seconds: float) -> str:
    """A span in one unit, rounded to the nearest: `12 s`, `3 min`, `5 h`, `2 d`. A unit ends where the next
    one reaches 2."""
    for unit, size, limit in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        count = math.floor(max(0.0, seconds) / size + 0.5)
        if count < limit:
            return f"{count} {unit}"
    return f"{math.floor(seconds / 86400 + 0.5)} d"
