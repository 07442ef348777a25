"""Parse the summary that jobstats writes to a job's AdminComment: `JS1:` and gzipped JSON in base64.

At a site with Princeton's jobstats every job is measured, including jobs that coach never touched.
`parse_jobstats` returns totals for the history, `parse_summary` values per node and GPU for the rules. The
size of a comment is not limited, so it is unpacked up to a limit; a value that is not a number is left out.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coach.model.slurm.accounting import Efficiency, GpuMeans, JobSummary, NodeMeans

SUMMARY = re.compile(r"JS1:H4s[\w+/]*=*", re.ASCII)
"""A packed summary anywhere in a text: gzip's output always begins this way."""
NO_SUMMARY = "JS1:None"

_PREFIX = "JS1:"
_MAX_CHARS = 1 << 20
_MAX_BYTES = 4 << 20
"""A job of 1,000 nodes with eight GPUs each takes half of this."""
_GZIP = 16 + zlib.MAX_WBITS
_MIB = 1024**2
_MAX_MINOR = 4096
_GPU_KEYS = ("gpu_utilization", "gpu_used_memory", "gpu_total_memory")
_NOTHING = {
    "Short": "jobstats measured nothing: the job was too short",
    "None": "jobstats measured nothing of the job",
}
"""jobstats' words in place of a summary → the reason."""


def parse_jobstats(comment: str) -> Efficiency | None:
    """The efficiency of a job; None if the comment contains no summary (`JS1:Short`, `JS1:None`). A value
    that one node lacks is None for the job."""
    named, seconds = _nodes_of(comment)
    if not named:
        return None
    nodes = [*named.values()]
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


def parse_summary(comment: str) -> JobSummary | None:
    """The summary per node; None if the comment is not from jobstats."""
    word = comment.strip()
    if not word.startswith(_PREFIX):
        return None
    gap = _NOTHING.get(word.removeprefix(_PREFIX))
    named, seconds = _nodes_of(word)
    if not named:
        return JobSummary(None, (), gap or "the summary of jobstats cannot be read")
    return JobSummary(seconds, tuple(_node(name, values) for name, values in sorted(named.items())))


def _node(name: str, values: Mapping[str, Any]) -> NodeMeans:
    cpus, used, allotted = (_number(values.get(key)) for key in ("cpus", "used_memory", "total_memory"))
    by_gpu = [values.get(key) for key in _GPU_KEYS]
    tables = [table if isinstance(table, dict) else {} for table in by_gpu]
    minors = {key for table in tables for key in table if key.isascii() and key.isdecimal()}
    return NodeMeans(
        name,
        num_cpus=round(cpus) if cpus else None,
        cpu_time_s=_number(values.get("total_time")),
        memory_used_mib=_in_mib(used),
        memory_allotted_mib=_in_mib(allotted),
        gpus=tuple(_gpu(minor, tables) for minor in sorted(minors, key=_minor) if _minor(minor) < _MAX_MINOR),
    )


def _gpu(minor: str, tables: Sequence[Mapping[str, Any]]) -> GpuMeans:
    busy, used, total = (_number(table.get(minor)) for table in tables)
    return GpuMeans(
        _minor(minor), busy if busy is not None and busy <= 100.0 else None, _in_mib(used), _in_mib(total)
    )


def _minor(key: str) -> int:
    return int(key[:9])


def _in_mib(num_bytes: float | None) -> float | None:
    return None if num_bytes is None else num_bytes / _MIB


def _nodes_of(comment: str) -> tuple[Mapping[str, Mapping[str, Any]], float | None]:
    """(nodes of a summary, run time of the job in seconds)."""
    plain = unpacked(comment)
    try:
        summary = json.loads(plain) if plain is not None else None
    except (ValueError, RecursionError):
        return {}, None
    if not isinstance(summary, dict):
        return {}, None
    nodes = summary.get("nodes")
    if not isinstance(nodes, dict) or not all(isinstance(node, dict) for node in nodes.values()):
        return {}, None
    return nodes, _number(summary.get("total_time"))


def packed(text: str) -> str:
    """A text as a comment that `unpacked` can read."""
    data = gzip.compress(text.encode("utf-8", "surrogateescape"), mtime=0)
    return _PREFIX + base64.b64encode(data).decode("ascii")


def unpacked(comment: str) -> str | None:
    """The text in a comment of jobstats; None if it contains none."""
    text = comment.strip()
    if not text.startswith(_PREFIX) or len(text) > _MAX_CHARS:
        return None
    try:
        data = base64.b64decode(text[len(_PREFIX) :], validate=True)
        unpacker = zlib.decompressobj(_GZIP)
        plain = unpacker.decompress(data, _MAX_BYTES)
        return plain.decode("utf-8") if unpacker.eof else None
    except (binascii.Error, zlib.error, ValueError):
        return None


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
