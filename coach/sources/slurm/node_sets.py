"""Slurm's node set expressions as names, and back: by ClusterShell, which knows every spelling of them.

Apart from who uses it, because ClusterShell takes `@name` for a group that it looks up by running commands:
here it never does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

_MAX_NODES = 200_000


@lru_cache(maxsize=1024)
def expand_nodes(expression: str | None) -> tuple[str, ...]:
    """`node[1-2],gpu7` as its names; empty for what is not set or no node set."""
    if not expression or expression in ("(null)", "None", "N/A"):
        return ()
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import GroupResolver

    if "@" in expression:
        return ()
    try:
        nodes = NodeSet(expression, resolver=GroupResolver())
        return tuple(nodes) if len(nodes) <= _MAX_NODES else ()
    except NodeSetException:
        return ()


def fold_nodes(names: Iterable[str]) -> str:
    """Names as one expression: `node[1-2]`. A name that is no node's stands by itself."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException
    from ClusterShell.NodeUtils import GroupResolver

    nodes = NodeSet(resolver=GroupResolver())
    odd = []
    for name in names:
        try:
            if "@" in name:
                raise NodeSetException(name)
            nodes.add(NodeSet(name, resolver=GroupResolver()))
        except NodeSetException:
            odd.append(name)
    return ",".join([*([str(nodes)] if len(nodes) else []), *odd])
