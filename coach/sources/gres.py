"""GPU counts out of Slurm's GRES and TRES expressions.

The same GPUs are spelt differently by every command, version and way of asking; a count that is wrong here makes the whole cluster
look free or full, so all spellings meet in this one pure function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_ITEM = re.compile(
    r"""
    ^(?:gres[:/])?gpu
    (?:[:/](?P<type>\(null\)|[^:=()\s]*[^:=()\s\d][^:=()\s]*|\d+(?=[:=])))?   # a100, (null), 3090 when a count follows
    (?:[:=](?P<count>\d+)(?P<unit>[KMG]?))?
    (?:\(.*\))?$                                                              # (IDX:0-1) (S:0-1)
    """,
    re.VERBOSE,
)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^()]*\))")


def parse_gpus(expression: str) -> Mapping[str | None, int]:
    """GPUs by type; the key None is for GPUs without a type. Other resources are passed over.

    Understands `gpu:a100:2(IDX:0-1)`, `gpu:(null):4`, `gpu:a100:8(S:0-1)`, `gres:gpu:2`, `gres/gpu:2`,
    `cpu=2,gres/gpu=4,gres/gpu:a100=4` (total and per type: the types are kept, the total is not added to them).
    """
    typed: dict[str, int] = {}
    untyped = 0
    has_untyped = False
    for item in _COMMA_OUTSIDE_PARENTHESES.split(expression.strip()):
        match = _ITEM.match(item.strip())
        if match is None:
            continue
        count = int(match["count"] or 1) * _UNITS[match["unit"] or ""]
        if match["type"] in (None, "(null)"):
            has_untyped = True
            untyped += count
        else:
            typed[match["type"]] = typed.get(match["type"], 0) + count
    gpus: dict[str | None, int] = {name: count for name, count in typed.items()}  # noqa: C416 (wider key type)
    rest = untyped - sum(typed.values()) if "=" in expression else untyped
    if rest > 0 or (has_untyped and not typed):
        gpus[None] = rest
    return gpus


def count_gpus(expression: str) -> int | None:
    """All GPUs of an expression; None when it says nothing about GPUs."""
    gpus = parse_gpus(expression)
    return sum(gpus.values()) if gpus else None
