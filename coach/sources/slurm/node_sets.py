"""Convert Slurm's node set expressions to names and back, with ClusterShell, which knows all spellings.

The conversion is here because ClusterShell takes `@name` for a group that it looks up by running commands,
and expands `*` and `?` to names that such a command returns: this module prevents both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from math import prod

_MAX_NODES = 200_000
_MARK = "\0"
_GROUPS = frozenset("@*?" + _MARK)
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_BETWEEN_ITEMS = re.compile(r"[,\s&!^]")
_RANGE = re.compile(r"(\d+)-(\d+)")
_MAX_DIGITS = 15
_ITEM = re.compile(r"(?:\[[^\[\]]*\]|[^,\s\[\]])+")
_OPEN_BRACKETS = frozenset("[]")
_OPERATORS = frozenset("!&^")
_TWO_NUMBERS = re.compile(r"\d\D+\d")
_MAX_COMPARED = 100
"""ClusterShell compares each item that has two numbers, `rack1n2` or `rack1n[2-4]`, with all others: 4,000 of
them took a minute."""
_LONG = 1024
"""Length in characters above which duplicates are removed before ClusterShell parses an expression: it copies
the rest of the expression for each item."""


@lru_cache(maxsize=1024)
def expand_nodes(expression: str | None) -> tuple[str, ...]:
    """`node[1-2],gpu7` as names; empty if the expression is not set or is no node set."""
    if not expression or expression in ("(null)", "None", "N/A"):
        return ()
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import GroupResolver

    if not _GROUPS.isdisjoint(expression) or _most_names(expression) > _MAX_NODES:
        return ()
    kept, apart = _divided(expression)
    try:
        ranges = (NodeSet(item, resolver=GroupResolver()) if "[" in item else (item,) for item in apart)
        names = sorted({name for each in ranges for name in each})
        return (*names, *NodeSet(kept, resolver=GroupResolver()))
    except (NodeSetException, ValueError, AssertionError):  # ClusterShell does not handle all spellings
        return ()


def _divided(expression: str) -> tuple[str, list[str]]:
    """Split off the items with two numbers if there are too many to compare: (other items, these items)."""
    if len(expression) < _LONG or not _OPERATORS.isdisjoint(expression):
        return expression, []
    if not _OPEN_BRACKETS.isdisjoint(_BRACKET.sub("0", expression)):
        return expression, []  # ClusterShell reports this error
    items = dict.fromkeys(_ITEM.findall(expression))
    apart = [item for item in items if _TWO_NUMBERS.search(_BRACKET.sub("0", item))]
    if len(apart) > _MAX_COMPARED:
        for item in apart:
            del items[item]
        return ",".join(items), apart
    return ",".join(items), []


def _most_names(expression: str) -> int:
    """Upper bound of the number of names: ClusterShell creates all names of a range at once, however many."""
    counts: list[int] = []
    without_brackets = _BRACKET.sub(lambda found: _noted(found[1], counts), expression)
    found = iter(counts)
    items = _BETWEEN_ITEMS.split(without_brackets)
    return sum(prod(next(found) for _ in range(item.count(_MARK))) for item in items)


def _noted(ranges: str, counts: list[int]) -> str:
    """Replace a bracket by a mark, and record the number of names in it."""
    counts.append(sum(map(_num_in, ranges.split(","))))
    return _MARK


def _num_in(part: str) -> int:
    """Number of names in `3`, `1-7`, or `0-100/5` (counted without the step, so five times too many)."""
    found = _RANGE.match(part)
    if found is None:
        return 1
    if max(map(len, found.groups())) > _MAX_DIGITS:
        return _MAX_NODES + 1
    return max(1, int(found[2]) - int(found[1]) + 1)


def fold_nodes(names: Iterable[str]) -> str:
    """Names as one expression: `node[1-2]`. A name that ClusterShell cannot parse is appended unchanged."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import GroupResolver

    nodes = NodeSet(resolver=GroupResolver())
    odd = []
    for name in names:
        try:
            if not _GROUPS.isdisjoint(name) or _most_names(name) > _MAX_NODES:
                raise NodeSetException(name)
            nodes.add(NodeSet(name, resolver=GroupResolver()))
        except (NodeSetException, ValueError, AssertionError):
            odd.append(name)
    return ",".join([*([str(nodes)] if len(nodes) else []), *odd])
