"""Tell the stacks that were taken of a job before its time limit ended it.

Whoever took them saw where the ranks stood; afterwards the log alone no longer tells a hang from a training
that was too slow. They are evidence beside the finding and change no cause.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from coach import runs
from coach.config import Settings
from coach.model.judging.finding import Diagnosis, Evidence
from coach.model.snapshot import TargetSnapshot
from coach.model.training.other_machine import rough_age

_SUMMARY = "summary.txt"
_MAX_BYTES = 4096


def with_stacks(diagnosis: Diagnosis, snapshot: TargetSnapshot, settings: Settings) -> Diagnosis:
    """The diagnosis; if the time limit ended a job of which stacks were taken, the finding says where its
    ranks stood."""
    first = next(iter(diagnosis.findings), None)
    if first is None or first.cause != "slurm_timeout" or not snapshot.has_ended:
        return diagnosis
    found = next(filter(None, (_newest(folder, snapshot) for folder in _folders(snapshot, settings))), None)
    if found is None:
        return diagnosis
    first = replace(first, evidence=(*first.evidence, found))
    return replace(diagnosis, findings=(first, *diagnosis.findings[1:]))


def _folders(snapshot: TargetSnapshot, settings: Settings) -> list[Path]:
    folders = [settings.cache_dir / "stacks" / snapshot.job.job_id] if snapshot.job is not None else []
    if snapshot.run is not None and snapshot.run.run_dir:
        folders.append(runs.RunPaths(Path(snapshot.run.run_dir)).stacks_dir)
    return folders


def _newest(folder: Path, snapshot: TargetSnapshot) -> Evidence | None:
    """The newest summary in a folder, if it was written while the job ran: job numbers are given again."""
    start_s, end_s = _times(snapshot)
    path = max(folder.glob(f"*/{_SUMMARY}"), default=None)
    if path is None or start_s is None or end_s is None:
        return None
    try:
        taken_s = path.stat().st_mtime
        with path.open("rb") as file:
            head = file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    line = next(iter(head.splitlines()), "")
    if not line or not start_s <= taken_s <= end_s:
        return None
    return Evidence(f"stacks taken {rough_age(end_s - taken_s)} before its end: {line}", str(path), 1)


def _times(snapshot: TargetSnapshot) -> tuple[float | None, float | None]:
    """When the job started and ended; None if unknown."""
    if snapshot.job is not None:
        return snapshot.job.start_time_s, snapshot.job.end_time_s
    run = snapshot.run
    return (None, None) if run is None else (run.started_time_s, run.ended_time_s)
