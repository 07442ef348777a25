"""The subject of a ticket: a judged target, with the job's row from any source that still has it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coach import runs
from coach.analysis.jobs.belonging import is_job_of
from coach.config import Settings
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.sources.io import Io
from coach.workflows.backend import resolve_backend
from coach.workflows.judging.targets import known_cluster, output_paths_of


@dataclass(frozen=True, slots=True)
class Subject:
    """`job_id` is None without Slurm; `record` is run.json, empty if coach did not launch the job."""

    snapshot: TargetSnapshot
    backend: str
    cluster: str | None = None
    job: Job | None = None
    job_id: str | None = None
    record: Mapping[str, Any] = field(default_factory=dict)


def subject_of(snapshot: TargetSnapshot, settings: Settings, io: Io, backend: str | None) -> Subject:
    """The subject. If the queue has forgotten the job, coach's memory and accounting are asked."""
    where = resolve_backend(backend or settings.launch.backend, os.environ)
    run, job, record = snapshot.run, snapshot.job, _record(snapshot)
    if where != "slurm" or (job is None and (run is None or run.backend != "slurm")):
        return Subject(snapshot, where, None, job, None, record)
    cluster = known_cluster(settings)
    job_id = job.job_id if job is not None else run.job_id if run is not None else None
    if job is None and run is not None and job_id is not None:
        row = output_paths_of(io, settings).row(job_id)
        job = row if row is not None and is_job_of(row, run, cluster) else None
    return Subject(snapshot, where, cluster, job, job_id, record)


def _record(snapshot: TargetSnapshot) -> Mapping[str, Any]:
    if snapshot.run is None:
        return {}
    try:
        return runs.read_json(runs.RunPaths(snapshot.run.run_dir).run_json)
    except runs.RunFileError as error:
        return {"unreadable": str(error)}
