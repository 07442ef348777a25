"""Words of Slurm's text output as values: records, durations, times, counts, and why a command failed.

Slurm escapes nothing and has a dozen ways to say "not set", so the reading of single words stands apart from
what is asked, where it can be tried on every odd word that was ever seen. All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

_UNSET = frozenset(
    {"", "N/A", "n/a", "(null)", "NONE", "None", "none", "Unknown", "UNKNOWN", "INVALID", "NOT_SET", "NO_VAL"}
)
_N = r"\d{1,15}"
"""A number of Slurm's has at most so many digits. Python neither prints nor sends one of thousands."""
_DURATION = re.compile(
    rf"^(?:(?P<days>{_N})-)?(?:(?:(?P<hours>{_N}):)?(?P<minutes>{_N}):)?(?P<seconds>{_N})$"
)
_COUNT = re.compile(rf"^({_N}(?:\.{_N})?)([KMG]?)(?:-|$)")
_WHOLE = re.compile(_N)
_MEMORY = re.compile(r"(\d{1,15})([KMGT]?)", re.ASCII)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_NUM_WORDS = 8192
"""Tens of thousands of rows say the same few words: what was read of them is kept."""
_NOT_HERE = "You are not running a supported"
_PREFIX = re.compile(r"^(?:\w+: )?(?:(?:fatal|error): |\w+ error: )")


class BadRow(ValueError):
    """A record that is not what was asked for. It is counted and shown as such."""


class Words(dict[K, V]):
    """What was read of each word, by the word, as long as one answer is read: a known one costs no call."""

    def __init__(self, read: Callable[[K], V]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, word: K) -> V:
        value = self[word] = self._read(word)
        return value


def split_records(text: str, separator: str, record_end: str) -> Iterator[list[str]]:
    """The fields of each record, one record after the other: a queue of tens of thousands is not taken apart
    in one piece.

    The client ends each record with a newline of its own, which is not part of the next one's first field.
    """
    start = 0
    while start < len(text):
        end = text.find(record_end, start)
        end = len(text) if end < 0 else end
        record = text[start:end]
        if record[:1] == "\n":
            record = record.lstrip("\n")
        if record:
            yield record.split(separator)
        start = end + len(record_end)


def is_torn(text: str, record_end: str) -> bool:
    """Whether an answer ends in the middle of a record: its client was ended, or a wrapper lost the rest.
    Without a record end, lines count."""
    end = record_end or "\n"
    at = text.rfind(end)
    rest = (text if at < 0 else text[at + len(end) :]).strip()
    is_heading = record_end and rest.startswith("CLUSTER: ")  # with -M, also where no job follows
    return bool(rest) and not is_heading


def optional(text: str) -> str | None:
    """A word, or None for each of Slurm's spellings of "not set". The same word is the same object, however
    many rows say it."""
    return None if text.strip() in _UNSET else intern(text)


def parse_whole(text: str) -> int | None:
    """A whole number; None for anything else, and for one that is longer than any of Slurm's."""
    return int(text) if _WHOLE.fullmatch(text) else None


@lru_cache(maxsize=_NUM_WORDS)
def parse_count(text: str) -> int | None:
    """`4`, `2K` (2048), `2-4` (the lower end); None when not set. Raises BadRow for anything else."""
    if text.strip() in _UNSET:
        return None
    match = _COUNT.match(text.strip())
    if match is None:
        raise BadRow(f"not a count: {text!r}")
    return int(float(match[1]) * _UNITS[match[2]])


@lru_cache(maxsize=_NUM_WORDS)
def parse_duration(text: str) -> int | None:
    """`1-02:03:04`, `2:03` and the like, in seconds; None for UNLIMITED and whatever is not a duration."""
    match = _DURATION.match(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (
        int(match[part] or 0) for part in ("days", "hours", "minutes", "seconds")
    )
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_time(text: str) -> float | None:
    """`2026-11-21T03:49:46`, local time as the clients print it, as epoch seconds; None when not set."""
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        return None


def parse_exit_code(text: str) -> int | None:
    """Exit status of a batch script: from `42:0` (newer versions) or the raw wait status `10752` (22.05).
    Killed by signal N is 128 + N."""
    code_text, colon, signal_text = text.strip().partition(":")
    code, signal = parse_whole(code_text), parse_whole(signal_text) if colon else 0
    if code is None or signal is None:
        return None
    if not colon:
        code, signal = (code >> 8) & 0xFF, code & 0x7F
    return 128 + signal if signal and not code else code


def failure_words(stderr: str) -> str:
    """The line of stderr that says why, without the program's name in front: `Unable to contact slurm
    controller (connect failure)`."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if not lines:
        return ""
    # The last line is the verdict, but behind a dead munged it only says "Protocol authentication error", and
    # where there is no accounting only which plugin would do.
    cause = next((line for line in lines if "Munge " in line or line.startswith(_NOT_HERE)), lines[-1])
    return _PREFIX.sub("", cause)


def parse_memory_mib(text: str) -> int | None:
    """Memory as sbatch takes it: `8G`, `500M`, `500` (MiB); None for anything else."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        return None
    return int(match[1]) * {"K": 1, "": 1024, "M": 1024, "G": 1024**2, "T": 1024**3}[match[2]] // 1024
