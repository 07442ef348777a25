"""Wording for a run on another machine, the same in screens and commands."""

from __future__ import annotations


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
    """The age in one unit: `12 s`, `3 min`, `5 h`, `2 d`."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
