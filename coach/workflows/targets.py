"""What a user names: a run, a job, a log; where it lies; and which sources follow it.

One place decides what `TARGET` means, so that `check`, `compare`, `record` and the screens mean the same thing by it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path

from coach import runs
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.log import Signature
from coach.model.reading import JobList, RunList
from coach.model.run import Run
from coach.sources.base import PollingSource
from coach.sources.io import Io
from coach.sources.job_files import JobFiles
from coach.sources.local_cluster import LocalClusterSource
from coach.sources.local_process import Look, look
from coach.sources.log import LogSource
from coach.sources.metrics import MetricsSource
from coach.sources.run_files import RunFilesSource
from coach.sources.run_list import RunListSource
from coach.sources.slurm import JobsSource
from coach.sources.telemetry import TelemetrySource

STDIN = "-"

_JOB_ID = re.compile(r"^\d+(?:_(?:\d+|\[[\d,%-]+\])|\+\d+)?$")

Signatures = Callable[[], Sequence[Signature]]
SourceFactory = Callable[[], PollingSource]


class TargetKind(Enum):
    RUN = "run"
    LOG = "log"
    JOB = "job"
    STDIN = "stdin"


@dataclass(frozen=True, slots=True)
class Target:
    """Something that can be read and diagnosed. `name` is what the user called it."""

    name: str
    kind: TargetKind
    path: Path | None = None
    """The run directory, or the log."""


def resolve_target(text: str, settings: Settings, io: Io, backend: str, user: str) -> Target:
    """`-`, an existing path, a run id, a job id, tried in this order. Raises UserError, with the nearest name as hint."""
    if text == STDIN:
        return Target(text, TargetKind.STDIN)
    path = Path(os.path.expanduser(text)).absolute()  # noqa: PTH111 (Path raises for an unknown ~user)
    found = _at_path(io, text, path) if text else None
    if found is not None:
        return found
    known = list_runs(io, settings.runs_root)
    for run in known:
        if text in (run.run_id, run.job_id):
            return Target(text, TargetKind.RUN, Path(run.run_dir))
    if runs.RUN_ID.match(text):
        found = _at_path(io, text, settings.runs_root / text)
        if found is not None:
            return found
    if backend == "slurm" and _JOB_ID.match(text) and _is_in_queue(io, user, text):
        return Target(text, TargetKind.JOB)
    near = get_close_matches(Path(text).name, [*(run.run_id for run in known), *_names_beside(io, path)], 1)
    hint = f"did you mean {near[0]}?" if near else "`coach runs` lists the runs, `coach jobs` the jobs"
    raise UserError(f"{text}: no run, job or file of that name", hint)


def locate_target(text: str, settings: Settings, io: Io, known: Sequence[Run]) -> Target:
    """What the screens follow. Never raises: what is wrong with it is said by its sources."""
    for run in known:
        if text in (run.run_id, run.run_dir, run.job_id):
            return Target(text, TargetKind.RUN, Path(run.run_dir))
    if "/" in text:
        path = Path(text)
        is_run = _exists(io, runs.RunPaths(path).run_json)
        return Target(text, TargetKind.RUN if is_run else TargetKind.LOG, path)
    if _JOB_ID.match(text):
        return Target(text, TargetKind.JOB)
    return Target(text, TargetKind.RUN, settings.runs_root / text)


def list_runs(io: Io, runs_root: Path) -> tuple[Run, ...]:
    """The runs that are there, newest first; none where they cannot be read."""
    for reading in RunListSource(io, runs_root).poll():
        if isinstance(reading.payload, RunList):
            return reading.payload.runs
    return ()


def target_sources(
    target: Target, io: Io, signatures: Signatures, look: Look = look
) -> Mapping[str, SourceFactory]:
    """The sources that follow a target, by `source:target`."""
    name, path = target.name, target.path
    if target.kind is TargetKind.JOB:
        return {f"log:{name}": lambda: LogSource(io, name, JobFiles(io, name), signatures)}
    if path is None:
        return {}
    if target.kind is TargetKind.LOG:
        return {f"log:{name}": lambda: LogSource(io, name, lambda: (path,), signatures)}
    paths = runs.RunPaths(path)
    logs = (paths.stdout_log, paths.stderr_log)
    return {
        f"run:{name}": lambda: RunFilesSource(io, name, path, look),
        f"metrics:{name}": lambda: MetricsSource(io, name, path),
        f"telemetry:{name}": lambda: TelemetrySource(io, name, path),
        f"log:{name}": lambda: LogSource(io, name, lambda: logs, signatures),
    }


def jobs_source(io: Io, backend: str, settings: Settings, user: str) -> PollingSource:
    """The source that knows the caller's own jobs, asked once by commands."""
    if backend == "slurm":
        return JobsSource(io, user, settings.jobs_interval_s, is_all=False)
    return LocalClusterSource(io, settings.runs_root, user)


def _at_path(io: Io, text: str, path: Path) -> Target | None:
    if _exists(io, runs.RunPaths(path).run_json):
        return Target(text, TargetKind.RUN, path)
    try:
        io.list_dir(path)
    except NotADirectoryError:
        return Target(text, TargetKind.LOG, path)
    except (OSError, ValueError):
        return Target(text, TargetKind.LOG, path) if _exists(io, path) else None
    raise UserError(
        f"{text}: a directory without run.json: not a run directory", "give a run directory or a log file"
    )


def _exists(io: Io, path: Path) -> bool:
    try:
        io.size(path)
    except (OSError, ValueError):
        return False
    return True


def _is_in_queue(io: Io, user: str, job_id: str) -> bool:
    for reading in JobsSource(io, user, 0.0).poll():
        if reading.error is not None:
            raise UserError(f"{job_id}: Slurm does not answer: {reading.error}")
        if isinstance(reading.payload, JobList):
            return any(job.job_id == job_id for job in reading.payload.jobs)
    return False


def _names_beside(io: Io, path: Path) -> list[str]:
    try:
        return [name for name in io.list_dir(path.parent) if not name.startswith(".")]
    except (OSError, ValueError):
        return []
