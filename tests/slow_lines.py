"""Lines on which a regular expression may take more than linear time, made from the expression itself.

A backtracking search is slow where one long run of text can be divided among its repeats in many ways, or
where each place of the line begins a new search that reads to the end. So each repeat of an expression gets a
line that leads up to it and then feeds it for as long as the line lasts, and each beginning of an expression
is written again and again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any

_parser = import_module("re._parser")  # the parser that `re` itself uses; it has no stubs

_MANY = 64
"""A repeat that may go on longer than this is fed."""
_PREFERRED = " a0_./:(=é\t\"'A-,[{<|\\!~\n"
"""Which character stands for a class that takes several: the first of these that it takes."""
_FEEDS = (
    *(
        " ",
        "\t",
        "a",
        "A",
        "0",
        ".",
        "/",
        "-",
        "=",
        ":",
        ",",
        "_",
        '"',
        "'",
        "(",
        "[",
        "{",
        "<",
        "|",
        "\\",
        "#",
    ),
    *("a ", "a.", "/a", "0 ", "a=", "0.", "a, ", "[0]", "(a) ", "é"),
)
_FEW_FEEDS = (" ", "a", "0", "_", "/")
_ENDS = ("", "\x00")
_MAX_FEEDS = 8
"""So many of the characters that a class takes are tried."""


@dataclass(frozen=True, slots=True)
class SlowLine:
    """`before`, then `feed` until the line is long enough, then `after`."""

    before: str
    feed: str
    after: str

    def of_length(self, length: int) -> str:
        room = max(0, length - len(self.before) - len(self.after))
        return self.before + self.feed * (room // len(self.feed)) + self.after


def slow_lines(pattern: re.Pattern[Any], literals: Sequence[str] = ()) -> list[SlowLine]:
    """Lines on which this expression may be slow, each once."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = _parser.parse(source, pattern.flags & ~re.LOCALE)
    walk = _Walk(bool(pattern.flags & re.IGNORECASE))
    walk.follow(tree, "")
    lines: dict[SlowLine, None] = {}
    for before, feeds in walk.repeats.items():
        for feed in feeds:
            for after in _ENDS:
                lines[SlowLine(before, feed, after)] = None
        for feed in feeds:
            lines[SlowLine("", before + feed, "")] = None
    for beginning in walk.beginnings:
        lines[SlowLine("", beginning, "")] = None
        lines[SlowLine("", beginning + " ", "")] = None
    for feed in _FEEDS:
        lines[SlowLine("", feed, "")] = None
    for before in literals:
        for feed in _FEW_FEEDS:
            lines[SlowLine(before, feed, "")] = None
    return list(lines)


class _Walk:
    """Goes through an expression with the shortest text that leads up to each part of it."""

    def __init__(self, is_any_case: bool) -> None:
        self.repeats: dict[str, set[str]] = {}
        """What leads up to a repeat, and what feeds it."""
        self.beginnings: dict[str, None] = {}
        self._groups: dict[int, str] = {}

    def follow(self, tree: Iterable[tuple[Any, Any]], before: str) -> str:
        """`before` and the shortest text for this tree."""
        for operation, said in tree:
            name = str(operation)
            if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
                low, high, inner = said
                one = self._alone(inner)
                if int(high) > _MANY and one:
                    feeds = self.repeats.setdefault(before, set())
                    feeds.add(one)
                    feeds.update(_feeds_of(inner))
                self.follow(inner, before)
                before += one * int(low)
            elif name == "BRANCH":
                ways = [self.follow(inner, before) for inner in said[1]]
                before = min(ways, key=len)
            elif name == "SUBPATTERN":
                group, _, _, inner = said
                after = self.follow(inner, before)
                if group is not None:
                    self._groups[group] = after[len(before) :]
                before = after
            elif name == "ATOMIC_GROUP":
                before = self.follow(said, before)
            elif name in ("ASSERT", "ASSERT_NOT"):
                if said[0] > 0:
                    self.follow(said[1], before)
            elif name == "GROUPREF":
                before += self._groups.get(said, "")
            elif name == "GROUPREF_EXISTS":
                before = self.follow(said[1], before)
            elif name != "AT":
                before += _char_for(name, said)
            if before:
                self.beginnings[before] = None
        return before

    def _alone(self, tree: Iterable[tuple[Any, Any]]) -> str:
        inner = _Walk(False)
        inner._groups = self._groups
        return inner.follow(tree, "")


def _feeds_of(tree: Sequence[tuple[Any, Any]]) -> Iterator[str]:
    """Characters that a repeated class takes, of every sort."""
    if len(tree) == 1 and str(tree[0][0]) in ("IN", "ANY", "NOT_LITERAL", "LITERAL"):
        yield from _taken(str(tree[0][0]), tree[0][1])


def _char_for(name: str, said: Any) -> str:
    return next(_taken(name, said), "")


def _taken(name: str, said: Any) -> Iterator[str]:
    if name == "LITERAL":
        yield chr(said)
        return
    items = said if name == "IN" else [(name, said)]
    asked = re.compile(_written(items), re.DOTALL)
    num_found = 0
    for char in filter(asked.match, _PREFERRED):
        if num_found == _MAX_FEEDS:
            return
        num_found += 1
        yield char
    if not num_found:
        yield from islice(filter(asked.match, map(chr, range(0x10000))), 1)


def _written(items: Iterable[tuple[Any, Any]]) -> str:
    parts = []
    negated = ""
    for operation, said in items:
        name = str(operation)
        if name == "ANY":
            return "[^\n]"
        if name in ("NEGATE", "NOT_LITERAL"):
            negated = "^"
        if name in ("LITERAL", "NOT_LITERAL"):
            parts.append(re.escape(chr(said)))
        elif name == "RANGE":
            parts.append(f"{re.escape(chr(said[0]))}-{re.escape(chr(said[1]))}")
        elif name == "CATEGORY":
            letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[str(said).rpartition("_")[2]]
            parts.append("\\" + (letter.upper() if "NOT" in str(said) else letter))
    return f"[{negated}{''.join(parts)}]"
