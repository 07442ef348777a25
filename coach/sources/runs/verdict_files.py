"""Store complete verdicts, one JSON object each: `verdict.json` in a run, and one file in the cache for each
other job.

A verdict contains commands to run, so only regular files of the user are read: in another user's run the text
would not come from coach.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coach import runs
from coach.sources.values import finite
from coach.trusted import private_folder, read_text

MAX_BYTES = 1 << 20
"""Even the verdict of an array with thousands of tasks is smaller; a larger file is no verdict."""
_FOLDER = "verdicts"
_JOB_ID = re.compile(r"\d{1,18}(?:[_+]\d{1,9})?")
_SUBMITTED = "submitted_s"


def read_verdict(path: Path) -> dict[str, Any] | None:
    """The verdict in a file; None if there is none that can be trusted and read."""
    try:
        value = json.loads(read_text(path, owner=os.geteuid(), limit=MAX_BYTES, errors="surrogateescape"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.get("schema") == 1 else None


def verdict_of_run(run_dir: Path) -> dict[str, Any] | None:
    """The verdict of a run; None if there is none, or if the run has ended again since it was written."""
    paths = runs.RunPaths(run_dir)
    verdict = read_verdict(paths.verdict_json)
    if verdict is None:
        return None
    try:
        is_stale = paths.exit_json.stat().st_mtime_ns > paths.verdict_json.stat().st_mtime_ns
    except FileNotFoundError:
        is_stale = False
    except OSError:
        return None
    return None if is_stale else verdict


def keep_verdict_of_run(run_dir: Path, verdict: Mapping[str, Any]) -> bool:
    """Write `verdict.json`. Returns False if it cannot be written."""
    return _write(runs.RunPaths(run_dir).verdict_json, verdict)


def verdict_of_job(cache_dir: Path, job_id: str, submitted_s: float | None) -> dict[str, Any] | None:
    """The verdict of a job that coach did not launch; `submitted_s` identifies it, because Slurm reuses job
    ids."""
    if not _JOB_ID.fullmatch(job_id):
        return None
    verdict = read_verdict(cache_dir / _FOLDER / f"{job_id}.json")
    if verdict is None or submitted_s is None or finite(verdict.pop(_SUBMITTED, None)) != submitted_s:
        return None
    return verdict


def verdict_of_forgotten_job(cache_dir: Path, job_id: str) -> dict[str, Any] | None:
    """The verdict of a job that Slurm no longer knows: no other job can have its id now."""
    verdict = read_verdict(cache_dir / _FOLDER / f"{job_id}.json") if _JOB_ID.fullmatch(job_id) else None
    if verdict is not None:
        verdict.pop(_SUBMITTED, None)
    return verdict


def keep_verdict_of_job(cache_dir: Path, job_id: str, submitted_s: float, verdict: Mapping[str, Any]) -> bool:
    """Store the verdict of a job that coach did not launch. Returns False if it cannot be written."""
    if not _JOB_ID.fullmatch(job_id):
        return False
    folder = cache_dir / _FOLDER
    try:
        private_folder(folder)
    except OSError:
        return False
    return _write(folder / f"{job_id}.json", {**verdict, _SUBMITTED: submitted_s})


def _write(path: Path, verdict: Mapping[str, Any]) -> bool:
    try:
        runs.write_atomic(path, json.dumps(verdict, indent=2) + "\n")
    except (OSError, ValueError):
        return False
    return True
