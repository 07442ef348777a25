"""Write numbers for people. Commands, tickets and limits of parameters share this spelling."""

from __future__ import annotations


def short_number(value: float) -> str:
    """`1234567`, `0.333333`: at most six digits, but a whole number keeps all of its digits."""
    is_whole = float(value).is_integer() and abs(value) < 1e15
    return f"{value:.15g}" if is_whole else f"{value:g}"
