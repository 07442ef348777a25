"""How a run of another machine is told, by screens and commands in the same words."""

from __future__ import annotations


def place(host: str | None) -> str:
    """What stands in place of its state, which nobody here knows."""
    return f"on {host or 'another machine'}"


def last_word(state: str | None, age: str | None) -> str:
    """Why that is not known, and what was. `age` is that of the last word, as it is shown: `3 min`."""
    as_of = f" {age} ago" if age else ""
    return f"not visible from here: {state or 'nothing said yet'}{as_of}"
