"""Parse and write times and memory in Slurm's spelling, strictly.

Options, configs and recipes share this spelling; each of them names its own place when it refuses a value.
"""

from __future__ import annotations

import re

from coach.model.errors import UserError
from coach.model.slurm.memory import mem_mib

_DAYS = re.compile(r"(\d{1,4})-(\d{1,2})(?::(\d{1,2}))?(?::(\d{1,2}))?", re.ASCII)
_CLOCK = re.compile(r"(?:(\d{1,5}):)?(\d{1,6}):(\d{1,2})", re.ASCII)


def parse_time(text: str, what: str) -> int:
    """Seconds of a time limit in Slurm's spelling. `what` names the option or key in the error message."""
    seconds = _seconds(text.strip())
    if not seconds:
        raise UserError(
            f"{what} {text!r}: not a time limit", "expected for example 30:00, 2:00:00 or 1-12:00:00"
        )
    return seconds


def _seconds(text: str) -> int | None:
    if match := _DAYS.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if match := _CLOCK.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return (hours * 60 + minutes) * 60 + seconds
    if re.fullmatch(r"\d{1,7}", text, re.ASCII):
        return int(text) * 60
    return None


def format_time(seconds: int) -> str:
    """A time limit as Slurm prints it: 00:30:00, 1-12:00:00."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hour:02}:{minute:02}:{second:02}"


def whole_minutes(seconds: int) -> int:
    """A time limit as Slurm stores it: rounded up to a whole minute, in seconds."""
    return -(-seconds // 60) * 60


def parse_mem_mib(text: str, what: str) -> int:
    """MiB of a memory size in Slurm's spelling; a bare number is MiB, 0 means all of the node."""
    size_mib = mem_mib(text)
    if size_mib is None:
        raise UserError(f"{what} {text!r}: not a memory size", "expected for example 500M, 16G or 1T")
    return size_mib
