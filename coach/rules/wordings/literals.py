"""Derive literal words from a pattern: each line that it matches holds one. A log is searched for these
first.

A row therefore need not repeat them beside its pattern. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any

_parser = import_module("re._parser")  # the parser of `re` itself; it has no stubs

MIN_CHARS = 3
"""Shorter words occur in too many lines to be useful."""
_MAX_CHARS = 24
_MAX_WORDS = 24

_MAX_FEW = 4
"""Largest character class that is expanded into its characters."""
_COMMON = frozenset({"Error: ", "Exception: ", "Error", "Exception", "error: ", "loss ", "oss "})
"""Words that occur in very many lines."""

_Words = frozenset[str]
_NO_WORDS: _Words = frozenset({""})
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


def literals_of(pattern: str) -> tuple[str, ...]:
    """A set of words, case-sensitive. Each line that the pattern matches contains at least one of them.

    Raises re.error for an invalid pattern, and ValueError for a pattern without such words.
    """
    tree = _parser.parse(pattern)
    best = max(_choices(tree, bool(tree.state.flags & re.IGNORECASE)), key=_worth, default=frozenset())
    if _worth(best) <= (0, 0):
        raise ValueError(f"no word of at least {MIN_CHARS} characters occurs in every line it matches")
    return tuple(sorted({word[:_MAX_CHARS] for word in best}))


def _worth(words: _Words) -> tuple[int, int]:
    """Sort key: longer words are rarer in logs, and a few words are searched faster than many."""
    shortest = min((0 if word in _COMMON else len(word) for word in words), default=0)
    if shortest < MIN_CHARS or len(words) > _MAX_WORDS:
        return (0, 0)
    return (min(shortest, _MAX_CHARS), -len(words))


def _choices(tree: Iterable[tuple[Any, Any]], is_any_case: bool) -> list[_Words]:
    """Sets of words. Each match of the pattern contains at least one word of every set."""
    choices: list[_Words] = []
    run = _NO_WORDS
    for operation, value in _flat(tree, is_any_case):
        more = _spelled(operation, value, is_any_case)
        if more and len(run) * len(more) <= _MAX_WORDS:
            run = frozenset(word + end for word in run for end in more)
            continue
        choices += [run, *_inner(operation, value, is_any_case)]
        run = more or _NO_WORDS
    return [*choices, run]


def _spelled(operation: str, value: Any, is_any_case: bool) -> _Words:
    """All texts that the operation matches; empty if there are too many."""
    if operation == "LITERAL":
        text = chr(value)
        return frozenset({text, text.lower(), text.upper()} if is_any_case else {text})
    if operation == "IN" and len(value) <= _MAX_FEW:
        chars = [_spelled(str(inner), char, is_any_case) for inner, char in value]
        return frozenset().union(*chars) if all(chars) else frozenset()
    if operation == "BRANCH" and len(value[1]) <= _MAX_WORDS:
        ways = [_spelled_all(way, is_any_case) for way in value[1]]
        return frozenset().union(*ways) if all(ways) else frozenset()
    return frozenset()


def _spelled_all(tree: Iterable[tuple[Any, Any]], is_any_case: bool) -> _Words:
    found = _NO_WORDS
    for operation, value in _flat(tree, is_any_case):
        more = _spelled(operation, value, is_any_case)
        found = frozenset(word + end for word in found for end in more)
        if not 0 < len(found) <= _MAX_WORDS:
            return frozenset()
    return found - _NO_WORDS


def _flat(tree: Iterable[tuple[Any, Any]], is_any_case: bool) -> Iterable[tuple[str, Any]]:
    """The operations in order, with plain groups dissolved."""
    for operation, value in tree:
        name = str(operation)
        if name == "SUBPATTERN" and not value[1] and not value[2]:
            yield from _flat(value[3], is_any_case)
        elif name == "ATOMIC_GROUP":
            yield from _flat(value, is_any_case)
        else:
            yield name, value


def _inner(operation: str, value: Any, is_any_case: bool) -> list[_Words]:
    if operation == "BRANCH":
        ways = [max(_choices(way, is_any_case), key=_worth, default=frozenset()) for way in value[1]]
        return [frozenset().union(*ways)] if all(_worth(way) > (0, 0) for way in ways) else []
    if operation in _REPEATS and value[0] > 0:
        return _choices(value[2], is_any_case)
    if operation == "ASSERT":
        return _choices(value[1], is_any_case)
    if operation == "SUBPATTERN":
        inner = bool(value[1] & re.IGNORECASE) or (is_any_case and not value[2] & re.IGNORECASE)
        return _choices(value[3], inner)
    return []
