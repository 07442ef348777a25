"""Copies facts that only the running job has into run.json: its start time, its job id, and the trainer's
`start` event."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Dict, List, Optional

from coach import runs
from coach.node import torch_build
from coach.node.node_name import raw_job_id, slurm_job_id
from coach.trusted import open_trusted

_EDGE_BYTES = 64 * 1024


def fold_start(
    paths: runs.RunPaths, started_time_s: float, torch: Optional[torch_build.TorchBuild] = None
) -> None:
    """Record the start of this attempt, and the torch of its Python if it is known. Raises OSError or
    RunFileError when run.json cannot be written."""
    # A requeued run still has the end of an earlier attempt.
    changes: Dict[str, Any] = {"started_time_s": started_time_s, "state": "RUNNING", "ended_time_s": None}
    job_id = slurm_job_id(os.environ)
    if job_id is not None:
        changes["job_id"] = job_id
        changes["raw_job_id"] = raw_job_id(os.environ)
    if torch is not None and torch.version:
        changes["versions"] = {"torch": torch.version}
        changes["torch_build"] = {"cuda": torch.cuda, "has_gpu_support": torch.has_gpu_support}
    with contextlib.suppress(FileNotFoundError):
        if paths.exit_json.stat().st_mtime < started_time_s - 1:
            paths.exit_json.unlink()
    runs.update_json(paths.run_json, changes)


def fold(paths: runs.RunPaths, started_time_s: float) -> bool:
    """Copy the facts of rank 0's newest `start` event. Returns False while there is none."""
    start = newest_start(edge_records(paths.metrics_of(0)), started_time_s)
    if start is None:
        return False
    changes: Dict[str, Any] = {}
    if start.get("device"):
        changes["device"] = {"type": start["device"], "name": start.get("device_name")}
        if start.get("compute_capability") is not None:
            changes["device"]["compute_capability"] = start["compute_capability"]
    if isinstance(start.get("dataset"), dict):
        changes["dataset"] = start["dataset"]
    versions = {name: start[name] for name in ("python", "torch") if start.get(name)}
    if versions:
        changes["versions"] = versions
    if start.get("num_parameters") is not None:
        changes["num_parameters"] = start["num_parameters"]
    if changes:
        runs.update_json(paths.run_json, changes)
    return True


def edge_records(metrics: Path) -> List[Dict[str, Any]]:
    """The first and the last records of a rank's metrics, which hold its events; empty while there are
    none."""
    try:
        with open_trusted(metrics, owner=None) as file:
            records = runs.decode_records(file.read(_EDGE_BYTES))[0]
            size = file.seek(0, os.SEEK_END)
            if size > _EDGE_BYTES:
                file.seek(max(_EDGE_BYTES, size - _EDGE_BYTES))
                # The first record after the jump is cut off at the front: it does not parse, and is skipped.
                records += runs.decode_records(file.read(_EDGE_BYTES))[0]
            return records
    except OSError:
        return []


def newest_start(records: List[Dict[str, Any]], started_time_s: float) -> Optional[Dict[str, Any]]:
    """The last `start` event of this attempt: a requeued run appends to the earlier attempts' files."""
    starts = [record for record in records if record.get("event") == "start"]
    newer = [
        start for start in starts if (runs.decode_number(start.get("time_s")) or 0) >= started_time_s - 1
    ]
    return newer[-1] if newer else None
