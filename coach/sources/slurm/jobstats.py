"""The summary that jobstats leaves in a job's AdminComment: `JS1:` and gzipped JSON in base64.

A site that runs Princeton's jobstats measures every job, also those that coach never touched. Nobody promises
the size of a comment: it is unpacked up to a limit, and a value that is no number is left out.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from coach.model.slurm.accounting import Efficiency

_PREFIX = "JS1:"
_MAX_CHARS = 1 << 20
_MAX_BYTES = 4 << 20
"""A job of 1,000 nodes with eight GPUs each takes half of it."""
_GZIP = 16 + zlib.MAX_WBITS
_MIB = 1024**2


def parse_jobstats(comment: str) -> Efficiency | None:
    """How a job used what it had; None where the comment holds no summary (`JS1:Short` and `JS1:None` are
    jobstats' words for that). What one node does not tell is None for the job."""
    nodes, seconds = _nodes_of(comment)
    if not nodes:
        return None
    cpu_s, cpus = _sum(nodes, "total_time"), _sum(nodes, "cpus")
    used, asked = _sum(nodes, "used_memory"), _sum(nodes, "total_memory")
    gpus = [_numbers(node.get("gpu_utilization")) for node in nodes]
    busy = [value for known in gpus for value in known]
    return Efficiency(
        cpu_pct=_percent(cpu_s, None if cpus is None or seconds is None else cpus * seconds),
        memory_pct=_percent(used, asked),
        memory_used_mib=None if used is None else used / _MIB,
        memory_asked_mib=None if asked is None else asked / _MIB,
        gpu_pct=sum(busy) / len(busy) if busy and max(busy) <= 100.0 else None,
    )


def _nodes_of(comment: str) -> tuple[list[Mapping[str, Any]], float | None]:
    """The nodes of a summary, and how long the job ran in seconds."""
    text = comment.strip()
    if not text.startswith(_PREFIX) or len(text) > _MAX_CHARS:
        return [], None
    try:
        packed = base64.b64decode(text[len(_PREFIX) :], validate=True)
        unpacker = zlib.decompressobj(_GZIP)
        plain = unpacker.decompress(packed, _MAX_BYTES)
        summary = json.loads(plain) if unpacker.eof else None
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return [], None
    if not isinstance(summary, dict):
        return [], None
    nodes = summary.get("nodes")
    if not isinstance(nodes, dict) or not all(isinstance(node, dict) for node in nodes.values()):
        return [], None
    return [*nodes.values()], _number(summary.get("total_time"))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _numbers(value: object) -> list[float]:
    found: Iterable[object] = value.values() if isinstance(value, dict) else ()
    return [number for each in found if (number := _number(each)) is not None]


def _sum(nodes: Iterable[Mapping[str, Any]], name: str) -> float | None:
    numbers = [_number(node.get(name)) for node in nodes]
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _percent(part: float | None, whole: float | None) -> float | None:
    return 100.0 * part / whole if part is not None and whole else None
