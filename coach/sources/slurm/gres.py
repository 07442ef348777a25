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
_PARTS = re.compile(r"\((\d+/\d+(?:,\d+/\d+)*)\)")
PARTS_OF_GPUS = frozenset({"shard", "mps"})
"""GRES that are parts of GPUs. A GPU with one of them in use cannot be allocated as a whole."""
_MAX_INDICES = 4096


@dataclass(frozen=True, slots=True)
class Gres:
    """One item of an expression. `type` is None if the site names no types."""

    name: str
    type: str | None
    count: int
    indices: tuple[int, ...] | None
    """Indices of the GPUs, of shards and MPS: of the GPUs with a part in use. None if Slurm does not report
    them."""


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
        found.append(
            Gres(
                name=match["name"],
                type=None if kind in (None, "(null)", "no_consume") else kind,
                count=int(match["count"] or 1) * _UNITS[match["unit"] or ""],
                indices=_parse_notes(match["notes"] or ""),
            )
        )
    return tuple(found)


def _parse_notes(notes: str) -> tuple[int, ...] | None:
    """The indices in `(IDX:0-1)`; of `(0/8,4/8)`, the parts in use of each GPU, the GPUs with some."""
    if indices := _INDICES.search(notes):
        return parse_indices(indices[1])
    if parts := _PARTS.search(notes):
        used = [part.partition("/")[0].strip("0") for part in parts[1].split(",")]
        return tuple(index for index, is_used in enumerate(used) if is_used)
    return None


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


def has_parts_of_gpus(expression: str) -> bool:
    """True if shards or MPS are in the expression. How many GPUs they are parts of is not in it."""
    return any(item.name in PARTS_OF_GPUS and item.count for item in parse_gres(expression))


def gpus_in_use(gres: str, gres_used: str) -> Mapping[str | None, int | None]:
    """GPUs in use of a node by type: allocated, or with shards or MPS in use; None if Slurm does not report
    their number.

    The count of shards is the number of GPUs in Slurm 22.05 and the number of shards in newer versions, so
    the indices are counted. Without them, the count may still leave only one answer.
    """
    totals, wholes = parse_gpus(gres), parse_gpus(gres_used)
    in_use: dict[str | None, int | None] = {**wholes}
    parts = {(item.name, item.type): item.count for item in parse_gres(gres)}
    for item in parse_gres(gres_used):
        if item.name not in PARTS_OF_GPUS or not item.count:
            continue
        num_gpus = None if item.indices is None else len(item.indices)
        total = totals.get(item.type) or sum(totals.values())
        if num_gpus is None and total:
            per_gpu = parts.get((item.name, item.type), 0) // total or item.count
            most = min(item.count, total - wholes.get(item.type, 0))
            num_gpus = most if most == -(-item.count // per_gpu) else None
        before = in_use.get(item.type, 0)
        in_use[item.type] = None if before is None or num_gpus is None else before + num_gpus
    return in_use


def gpu_indices(expression: str) -> tuple[int, ...] | None:
    """Indices of all GPUs in use, also by shards or MPS, in an expression such as GresUsed; None if a GPU in
    use has no index. The list of the shards of each type begins at 0, so with several types it gives none."""
    indices: set[int] = set()
    has_types = len(parse_gpus(expression)) > 1
    for item in parse_gres(expression):
        if item.name not in {"gpu", *PARTS_OF_GPUS} or item.count == 0:
            continue
        if item.indices is None or (has_types and item.name in PARTS_OF_GPUS):
            return None
        indices.update(item.indices)
    return tuple(sorted(indices)) if parse_gpus(expression) else None
