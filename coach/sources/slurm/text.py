"""Parse single values in Slurm's text output: records, durations, times, counts; and the cause of a failed
command.

Slurm escapes nothing and has a dozen spellings of "not set". So single values are parsed here, apart from the
queries, where every odd spelling that was ever seen can be tested. All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import TypeVar

from coach.sources.io import CommandResult

K = TypeVar("K")
V = TypeVar("V")

_UNSET = frozenset(
    {"", "N/A", "n/a", "(null)", "NONE", "None", "none", "Unknown", "UNKNOWN", "INVALID", "NOT_SET", "NO_VAL"}
)
_N = r"\d{1,15}"
"""Largest number of digits of a number in Slurm. Python neither prints nor sends numbers with thousands of
digits."""
_DURATION = re.compile(
    rf"^(?:(?P<days>{_N})-)?(?:(?:(?P<hours>{_N}):)?(?P<minutes>{_N}):)?(?P<seconds>{_N})$"
)
_COUNT = re.compile(rf"^({_N}(?:\.{_N})?)([KMG]?)(?:-|$)")
_WHOLE = re.compile(_N)
_JOB_ID = re.compile(rf"{_N}(?:_(?:{_N}|\[[^\]]*\]?)|\+{_N})?")
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_NUM_WORDS = 8192
"""Size of caches: tens of thousands of rows repeat the same few words."""
_NOT_HERE = "You are not running a supported"
_PREFIX = re.compile(r"^(?:\w+: )?(?:(?:fatal|error): |\w+ error: )")


class BadRow(ValueError):
    """A record that does not have the expected form. Such records are counted and shown."""


class Words(dict[K, V]):
    """Word → its parsed value, while one answer is parsed: a known word costs no call."""

    def __init__(self, read: Callable[[K], V]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, word: K) -> V:
        value = self[word] = self._read(word)
        return value


def columns_option(columns: Sequence[str], separator: str, record_end: str) -> str:
    """The value of squeue's -O for these columns."""
    return ",".join([*(f"{column}:{separator}" for column in columns[:-1]), f"{columns[-1]}:{record_end}"])


def rows_by_heading(text: str, key: str) -> tuple[list[dict[str, str]], int]:
    """(rows by the words of their first line, number of malformed lines), from tables with `|` between the
    columns. Without a column `key`, every line is malformed."""
    heading, *lines = text.split("\n")
    columns = heading.split("|")
    records = [line.split("|") for line in lines if line.strip()]
    rows = [
        dict(zip(columns, record, strict=True))
        for record in records
        if len(record) == len(columns) and key in columns
    ]
    return rows, len(records) - len(rows)


def split_records(text: str, separator: str, record_end: str) -> Iterator[list[str]]:
    """Yield the fields of one record at a time, so that a queue of tens of thousands of records is never
    split at once.

    The client ends each record with its own newline, which does not belong to the next record's first field.
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
    """True if an answer ends within a record, because its client was killed or a wrapper lost the rest.
    Without `record_end`, lines are the records."""
    end = record_end or "\n"
    at = text.rfind(end)
    rest = (text if at < 0 else text[at + len(end) :]).strip()
    is_heading = record_end and rest.startswith("CLUSTER: ")  # with -M, even if no job follows
    return bool(rest) and not is_heading


def optional(text: str) -> str | None:
    """A word, or None for each of Slurm's spellings of "not set". Equal words become one object, however many
    rows contain them."""
    return None if text.strip() in _UNSET else intern(text)


def is_job_id(text: str) -> bool:
    """True for `17`, `17_3`, `17_[3-8%2]`, `20+1`. Without SLURM_BITSTR_LEN, squeue cuts a list of tasks
    (`17_[3,5,20`)."""
    return _JOB_ID.fullmatch(text) is not None


def parse_whole(text: str) -> int | None:
    """An integer; None for any other text, and for one that is longer than any number in Slurm."""
    return int(text) if _WHOLE.fullmatch(text) else None


@lru_cache(maxsize=_NUM_WORDS)
def parse_count(text: str) -> int | None:
    """`4`, `2K` (2048), `2-4` (the lower end); None if not set. Raises BadRow for any other text."""
    if text.strip() in _UNSET:
        return None
    match = _COUNT.match(text.strip())
    if match is None:
        raise BadRow(f"not a count: {text!r}")
    return int(float(match[1]) * _UNITS[match[2]])


@lru_cache(maxsize=_NUM_WORDS)
def parse_duration(text: str) -> int | None:
    """`1-02:03:04`, `2:03` and the like in seconds; None for UNLIMITED and any text that is no duration."""
    match = _DURATION.match(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (
        int(match[part] or 0) for part in ("days", "hours", "minutes", "seconds")
    )
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_time(text: str) -> float | None:
    """`2026-11-21T03:49:46`, local time as the clients print it, as epoch seconds; None if not set."""
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        return None


def parse_exit_code(text: str) -> int | None:
    """Exit status of a batch script, from `42:0` (newer versions) or the raw wait status `10752` (22.05).
    Killed by signal N is 128 + N."""
    code_text, colon, signal_text = text.strip().partition(":")
    code, signal = parse_whole(code_text), parse_whole(signal_text) if colon else 0
    if code is None or signal is None:
        return None
    if not colon:
        signal = code & 0x7F
        # Slurm puts errors of its own there too: 4021 is `0:53`, a script that could not be started.
        code = 0 if signal else (code >> 8) & 0xFF
    return 128 + signal if signal and not code else code


def failure_of(result: CommandResult) -> str | None:
    """Why a command failed, in its own words; None if it has an answer."""
    if result.error is not None or result.returncode == 0:
        return result.error
    return failure_words(result.stderr) or f"{result.query.argv[0]}: exit status {result.returncode}"


def failure_words(stderr: str) -> str:
    """The line of stderr with the cause, without the program's name in front: `Unable to contact slurm
    controller (connect failure)`."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if not lines:
        return ""
    # The last line is the result. But if munged is dead it only says "Protocol authentication error", and
    # without accounting it only names the plugin that would work.
    cause = next((line for line in lines if "Munge " in line or line.startswith(_NOT_HERE)), lines[-1])
    return _PREFIX.sub("", cause)
