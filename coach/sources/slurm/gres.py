"""Parse GPUs and other counted resources from Slurm's GRES and TRES expressions.

Every command, version and kind of request spells the same GPUs differently. A wrong count makes the whole
cluster look free or full, so all spellings are parsed in this one pure module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from coach.sources.slurm.text import parse_whole

_ITEM = re.compile(
    r"""
    ^(?:gres[:/])?(?P<name>[A-Za-z_][\w.-]*)
    (?:[:/](?P<type>\(null\)|\d*+[^:=()\s\d][^:=()\s]*+|\d+(?=[:=])))?  # a100, (null), 3090 before a count
    (?::no_consume)?
    (?:[:=](?P<count>\d{1,15})(?P<unit>[KMGTP]?))?
    (?P<notes>(?:\([^()]*\))*)$                                               # (IDX:0-1) (S:0-1) (0/8,4/8)
    """,
    re.VERBOSE,
)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^()]{0,200}\))")
_INDICES = re.compile(r"\(IDX:([0-9,-]+)\)")
_MAX_INDICES = 4096


@dataclass(frozen=True, slots=True)
class Gres:
    """One item of an expression. `type` is None if the site names no types."""

    name: str
    type: str | None
    count: int
    indices: tuple[int, ...] | None
    """Indices of the items; None if Slurm does not report them (it never does for shards and MPS)."""


@lru_cache(maxsize=4096)
def parse_gres(expression: str) -> tuple[Gres, ...]:
    """All items of an expression, in order. Items that are no GRES (`cpu=2`, `mem=8G`) are included under
    their own names; `N/A` and `(null)` are not.

    Understands `gpu:a100:2(IDX:0-1)`, `gpu:(null):4`, `gpu:a100:8(S:0-1)`, `gpu:1g.5gb:7`,
    `shard:a100:4(0/8,4/8)`, `gres:gpu:2`, `gres/gpu:2` and `cpu=2,gres/gpu=4,gres/gpu:a100=4`.
    """
    found = []
    for item in _COMMA_OUTSIDE_PARENTHESES.split(expression.strip()):
        match = _ITEM.match(item.strip())
        if match is None or item.strip() == "N/A":
            continue
        kind = match["type"]
        indices = _INDICES.search(match["notes"] or "")
        found.append(
            Gres(
                name=match["name"],
                type=None if kind in (None, "(null)", "no_consume") else kind,
                count=int(match["count"] or 1) * _UNITS[match["unit"] or ""],
                indices=parse_indices(indices[1]) if indices else None,
            )
        )
    return tuple(found)


def parse_indices(text: str) -> tuple[int, ...]:
    """`0-1,3` as (0, 1, 3); () if the text is no such list, or is absurdly long."""
    indices: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low = parse_whole(first)
        high = parse_whole(last) if dash else low
        if low is None or high is None:
            return ()
        if not 0 <= high - low < _MAX_INDICES or len(indices) > _MAX_INDICES:
            return ()
        indices += range(low, high + 1)
    return tuple(indices)


def parse_gpus(expression: str) -> Mapping[str | None, int]:
    """GPUs by type; the key None is for GPUs without a type. Other resources are ignored.

    If a total is given in addition to the types (`gres/gpu=4,gres/gpu:a100=4`), it is not added to them.
    """
    typed: dict[str, int] = {}
    untyped = 0
    has_untyped = False
    for item in parse_gres(expression):
        if item.name != "gpu":
            continue
        if item.type is None:
            has_untyped = True
            untyped += item.count
        else:
            typed[item.type] = typed.get(item.type, 0) + item.count
    # The annotation widens the type of the keys.
    gpus: dict[str | None, int] = {name: count for name, count in typed.items()}  # noqa: C416
    rest = untyped - sum(typed.values()) if "=" in expression else untyped
    if rest > 0 or (has_untyped and not typed):
        gpus[None] = rest
    return gpus


def count_gpus(expression: str) -> int | None:
    """Number of GPUs in an expression; None if it contains no GPU item."""
    gpus = parse_gpus(expression)
    return sum(gpus.values()) if gpus else None


def gpu_indices(expression: str) -> tuple[int, ...] | None:
    """Indices of all GPUs in an expression such as GresUsed; None if a GPU in use has no index."""
    indices: list[int] = []
    for item in parse_gres(expression):
        if item.name != "gpu" or item.count == 0:
            continue
        if item.indices is None:
            return None
        indices += item.indices
    return tuple(sorted(indices)) if parse_gpus(expression) else None
