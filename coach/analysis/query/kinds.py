"""Parse the value of a filter's word, by the kind of its field.

Each reader compiles a text once into a test of a value. It raises ValueError for a text that it cannot read,
with a suggestion if it has one. Durations and numbers are compared; names match whole; texts match parts.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate
from typing import Any, Literal

from coach.analysis.queueing.arrays import group_id, parse_task_ids

Test = Callable[[Any], bool]
Expand = Callable[[str | None], tuple[str, ...]]
"""Expands a node set expression to names."""

_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
    "": operator.eq,
}
_SIGNED = re.compile(r"(>=|<=|>|<|=|)(.+)")
_UNITS = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_CLOCK = re.compile(
    r"(?:(?P<days>\d{1,6})-)?(?P<first>\d{1,6})(?::(?P<second>\d{1,6}))?(?::(?P<third>\d{1,6}))?"
)
_LONG_RANGE = re.compile(r"-\d{6,}")
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: how it is written, parsed, shown and sorted."""

    shown_as: Literal["text", "count", "percent", "size", "duration", "time"]
    example: str = ""
    read: Callable[[str], Test] | None = None
    """None: the field cannot be filtered by."""
    rank: Callable[[Any], Any] | None = None
    """The sort key of a value, if not the value itself."""


def _read_text(text: str) -> Test:
    if not text:
        raise ValueError
    wanted = text.lower()
    return lambda value: value is not None and wanted in value.lower()


def _read_name(text: str) -> Test:
    is_wanted = _name_test(text.lower())

    def test(value: str | tuple[str, ...] | None) -> bool:
        if value is None:
            return False
        if isinstance(value, str):
            if "," not in value:  # a pending job may name several partitions
                return is_wanted(value.lower())
            value = tuple(value.split(","))
        return any(is_wanted(each.lower()) for each in value)

    return test


def _name_test(wanted: str) -> Test:
    if not wanted:
        raise ValueError
    if "*" in wanted or "?" in wanted:
        matches = re.compile(translate(wanted)).match
        return lambda name: matches(name) is not None
    return lambda name: bool(name == wanted)


def _read_count(text: str) -> Test:
    return _compared(text, _number)


def _read_duration(text: str) -> Test:
    return _compared(text, seconds_of)


def _compared(text: str, read: Callable[[str], float]) -> Test:
    low, dots, high = text.partition("..")
    if dots:
        least = read(low) if low else float("-inf")
        most = read(high) if high else float("inf")
        return lambda value: value is not None and least <= value <= most
    match = _SIGNED.fullmatch(text)
    if match is None:
        raise ValueError
    is_so, bound = _SIGNS[match[1]], read(match[2])
    return lambda value: value is not None and is_so(value, bound)


def _number(text: str) -> float:
    if not re.fullmatch(r"\d{1,15}(\.\d{1,6})?", text):
        raise ValueError
    return float(text)


def _read_size(text: str) -> Test:
    return _compared(text, _mib)


def _mib(text: str) -> float:
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([MGT])", text.upper())
    if match is None:
        raise ValueError
    return float(match[1]) * {"M": 1, "G": 1024, "T": 1024 * 1024}[match[2]]


def seconds_of(text: str) -> float:
    """Seconds of `30m`, `2h30m`, `1d`, or of Slurm's `2:30:00`, `1-12`, `1-12:30:00`. Raises ValueError for a
    bare number, which has no unit."""
    units = _UNITS.fullmatch(text)
    if units is not None and text:
        days, hours, minutes, seconds = (float(part or 0) for part in units.groups())
        return days * 86400 + hours * 3600 + minutes * 60 + seconds
    if text.isdecimal():
        raise ValueError(f"{text} of what? {text}m are minutes")
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError
    first, second, third = (int(match[part] or 0) for part in ("first", "second", "third"))
    if match["days"] is not None:
        return int(match["days"]) * 86400 + first * 3600 + second * 60 + third
    return first * 3600 + second * 60 + third if match["third"] is not None else first * 60 + second


def _read_id(text: str) -> Test:
    ids = parse_task_ids(text)
    if ids is None or not ids.tasks:
        if not re.fullmatch(r"[\w.+-]+", text):
            raise ValueError
        if group_id(text) != text:
            return lambda value: bool(value == text)
        return lambda value: value == text or group_id(value) == text
    tasks = frozenset(ids.tasks)

    def test(value: str) -> bool:
        if not value.startswith(ids.array_id + "_"):
            return False
        found = parse_task_ids(value)
        return found is not None and not tasks.isdisjoint(found.tasks)

    return test


def _id_rank(job_id: str) -> tuple[int, ...]:
    if job_id.isdecimal():
        return (int(job_id[:18]),)
    return tuple(int(part[:18]) for part in _DIGITS.findall(job_id)[:4])


def natural(name: str) -> list[str | int]:
    """Sort key that puts node2 before node10."""
    return [int(part[:18]) if part.isdecimal() else part.lower() for part in _DIGITS.split(name)]


TEXT = Kind("text", "a part of it", _read_text, str.lower)
NAME = Kind("text", "a name, with * for any letters", _read_name)
COUNT = Kind("count", "4, >0, >=2, <8 or 2..4", _read_count)
PERCENT = Kind("percent", "<30, >=90 or 30..60", _read_count)
SIZE = Kind("size", ">=64G, <512M or 1T..2T", _read_size)
DURATION = Kind("duration", ">2h, <=30m, 1-00:00:00 or 1h..4h", _read_duration)
TIME = Kind("time")
ID = Kind("text", "17 (with all its tasks), 17_3 or 17_[1-4]", _read_id, _id_rank)


def choice(words: Iterable[str]) -> Kind:
    """One of a few words, which must match whole."""
    known = tuple(words)

    def read(text: str) -> Test:
        wanted = text.lower()
        if wanted not in known:
            raise ValueError(_closest(wanted, known))
        return lambda value: bool(value == wanted)

    return Kind("text", f"one of {', '.join(known)}", read)


def states(
    known: Iterable[str], codes: Mapping[str, str], split: Callable[[str], Iterable[str]], example: str
) -> Kind:
    """States by a prefix, or by Slurm's short code. `split` returns the words of a state, spelt as in
    `known`."""
    words = tuple(sorted(known))

    def read(text: str) -> Test:
        wanted = codes.get(text.lower())
        found = {wanted} if wanted else {word for word in words if text and word.startswith(text.lower())}
        if not found:
            raise ValueError(_closest(text.lower(), words))
        cache: dict[str, bool] = {}

        def test(value: str) -> bool:
            if value not in cache:
                cache[value] = not found.isdisjoint(split(value))
            return cache[value]

        return test

    return Kind("text", example, read)


def node_set(expand: Expand) -> Kind:
    """Nodes by name, by a node set expression, or with `*`."""

    def read(text: str) -> Test:
        if "*" in text:
            is_wanted = _name_test(text)
        else:
            # A range this long is a typing error, and would be expanded name by name.
            names = frozenset(() if _LONG_RANGE.search(text) else expand(text))
            if not names:
                raise ValueError
            is_wanted = names.__contains__
        return lambda value: value is not None and any(map(is_wanted, expand(value)))

    return Kind("text", "node7, gpu[1-4] or gpu*", read, natural)


def or_me(kind: Kind, user: str | None) -> Kind:
    """Names of users, of which `me` is one."""
    read = kind.read
    assert read is not None
    return Kind(
        kind.shown_as,
        f"me, or {kind.example}",
        lambda text: read(user if text == "me" and user else text),
        kind.rank,
    )


def _closest(text: str, known: Iterable[str]) -> str:
    close = get_close_matches(text, list(known), 1, 0.6)
    return f"did you mean {close[0]}?" if close else ""
