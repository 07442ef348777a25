"""How each rank of this node ended: from its metrics, torchrun's error files, and torchrun's table of
failures.

No single source has all ends. A rank that ended by itself wrote an `end` event. A rank with an exception left
an error file. A rank that was killed left nothing, and only torchrun's table on stderr has its signal.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from coach import runs
from coach.node.trainer_facts import edge_records, newest_start
from coach.trusted import open_trusted, read_text

MAX_MESSAGE_CHARS = 500
_TABLE_WAIT_S = 1.0
_TABLE_BYTES = 256 * 1024

_FAILURE = re.compile(
    (
        r"rank +: (?P<rank>\d+) \(local_rank: \d+\)\s+exitcode +: (?P<exitcode>-?\d+) "
        r".{0,200}\s{1,40}error_file: (?P<file>\S.*)"
    )
)

_LOST_PEER = re.compile(
    r"connection (closed|reset|refused|was lost|timed out)|broken pipe|gloo/transport|ncclremoteerror"
    r"|ncclsystemerror|"
    r"remote process (has )?(exited|terminated)|nccl communicator was aborted|collective operation timeout"
    r"|recvvalue failed|"
    r"socket (closed|timeout)|signalexception|got signal: 15|death signal",
    re.IGNORECASE,
)


def collect(
    paths: runs.RunPaths,
    node: str,
    started_time_s: float,
    error_dirs: List[Path],
    stderr_offset: int,
    returncode: int,
) -> List[Dict[str, Any]]:
    """One entry per rank that ran here, as far as known, in order. `error_dirs` are torchrun's log folders of
    this attempt."""
    ends, rank_of_local = _ends_in_metrics(paths.metrics_dir, node, started_time_s)
    if not error_dirs and len(ends) == 1 and returncode != 0:
        _set_status(next(iter(ends.values())), returncode)
    errors = {path: message for folder in error_dirs for path, message in read_error_files(folder).items()}
    table = _await_table(paths.stderr_log, stderr_offset) if error_dirs and returncode != 0 else []
    file_ranks: Dict[str, int] = {}
    for rank, exitcode, file in table:
        _set_status(ends.setdefault(rank, _entry(rank)), exitcode)
        file_ranks[file] = rank
    for path, message in errors.items():
        local_rank = int(path.parent.name)
        found = file_ranks.get(str(path), rank_of_local.get(local_rank))
        if found is None and os.environ.get("SLURM_NNODES", "1") == "1":
            found = local_rank
        if found is not None:
            ends.setdefault(found, _entry(found))["message"] = message
    return [ends[rank] for rank in sorted(ends)]


def _ends_in_metrics(
    metrics_dir: Path, node: str, started_time_s: float
) -> Tuple[Dict[int, Dict[str, Any]], Dict[int, int]]:
    """An entry for each rank that started on this node in this attempt, and local rank → rank."""
    ends: Dict[int, Dict[str, Any]] = {}
    rank_of_local: Dict[int, int] = {}
    for metrics in sorted(metrics_dir.glob("rank-*.jsonl")):
        records = edge_records(metrics)
        start = newest_start(records, started_time_s)
        if start is None or start.get("node", node) != node:
            continue
        rank = int(metrics.stem[len("rank-") :])
        rank_of_local[start.get("local_rank", rank)] = rank
        ends[rank] = _entry(rank)
        for record in records:
            if record.get("event") == "end" and (record.get("time_s") or 0) >= (start.get("time_s") or 0):
                ends[rank]["exit_code"] = record.get("exit_code")
    return ends, rank_of_local


def mark_bystanders(ranks: List[Dict[str, Any]]) -> None:
    """Mark a rank as a bystander if it only lost its peer, or torchrun ended it, and another rank has a cause
    of its own."""
    has_cause = any(_has_own_cause(rank) for rank in ranks)
    for rank in ranks:
        is_consequence = bool(_LOST_PEER.search(rank["message"] or "")) or rank["signal"] == 15
        rank["is_bystander"] = has_cause and is_consequence and not _has_own_cause(rank)


def read_error_files(log_dir: Path) -> Dict[Path, str]:
    """The error files of the last attempt in one of torchrun's log folders, each with the first line of its
    message."""
    attempts = sorted(log_dir.glob("attempt_*"), key=lambda path: (len(path.name), path.name))
    messages: Dict[Path, str] = {}
    for path in attempts[-1].glob("*/error.json") if attempts else ():
        message = _message_of(path)
        if message is not None and path.parent.name.isdecimal():
            messages[path] = message
    return messages


def parse_failures(text: str) -> List[Any]:
    """(rank, exit code, error file) of each entry of torchrun's tables of failures."""
    return [
        (int(found["rank"]), int(found["exitcode"]), found["file"].strip())
        for found in _FAILURE.finditer(text)
    ]


def _entry(rank: int) -> Dict[str, Any]:
    return {"rank": rank, "exit_code": None, "signal": None, "message": None, "is_bystander": False}


def _set_status(entry: Dict[str, Any], returncode: int) -> None:
    entry["exit_code"] = returncode if returncode >= 0 else None
    entry["signal"] = -returncode if returncode < 0 else None


def _has_own_cause(rank: Dict[str, Any]) -> bool:
    if rank["message"]:
        return not _LOST_PEER.search(rank["message"])
    if rank["signal"] is not None:
        return bool(rank["signal"] != 15)
    return rank["exit_code"] not in (0, None)


def _message_of(path: Path) -> Optional[str]:
    try:
        value: Any = json.loads(read_text(path, owner=None, errors="replace"))
    except (OSError, ValueError, RecursionError):
        return None
    for _ in range(2):  # {"message": {"message": "…"}}; older versions write {"message": "…"}
        value = value.get("message") if isinstance(value, dict) else value
    if not isinstance(value, str):
        return None
    return (value.strip().splitlines() or [""])[0][:MAX_MESSAGE_CHARS]


def _await_table(stderr_log: Path, offset: int) -> List[Any]:
    # Under Slurm another process writes the log, a moment later.
    deadline = time.monotonic() + _TABLE_WAIT_S
    while True:
        try:
            with open_trusted(stderr_log, owner=None, follows_links=True) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(offset, size - _TABLE_BYTES))
                failures = parse_failures(file.read(_TABLE_BYTES).decode("utf-8", "replace"))
        except OSError:
            return []
        if failures or time.monotonic() > deadline:
            return failures
        time.sleep(0.1)
