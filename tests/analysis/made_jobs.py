"""Rows of the queue, with the values that a test gives and defaults for the rest."""

from __future__ import annotations

from typing import Any

from coach.model.slurm.cluster import Job


def job(job_id: str = "17", state: str = "PENDING", reason: str | None = None, **more: Any) -> Job:
    values: dict[str, Any] = {
        "name": "train",
        "user": "ada",
        "partition": "gpu",
        "nodes": None,
        "num_nodes": 1,
        "num_cpus": 2,
        "num_gpus": 1,
        "time_used_s": 0,
        "time_left_s": None,
        "time_limit_s": 600,
        "submit_time_s": 900.0,
        "start_time_s": None,
        "end_time_s": None,
        **more,
    }
    return Job(job_id=job_id, state=state, reason=reason, **values)
