"""The names of this node and this job, and the part of the job that runs here."""

from __future__ import annotations

import os
from typing import Mapping, Optional


def node_name(env: Mapping[str, str]) -> str:
    """Slurm's name of the node, else the short host name. Always usable as a file name."""
    name = env.get("SLURMD_NODENAME") or os.uname().nodename.split(".")[0]
    return name.replace("/", "_").lstrip(".") or "localhost"


def slurm_job_id(env: Mapping[str, str]) -> Optional[str]:
    """The job id as squeue prints it; for an array, the task: `17`, `17_3`. None outside Slurm."""
    task = env.get("SLURM_ARRAY_TASK_ID")
    if task and env.get("SLURM_ARRAY_JOB_ID"):
        return f"{env['SLURM_ARRAY_JOB_ID']}_{task}"
    return env.get("SLURM_JOB_ID") or None


def raw_job_id(env: Mapping[str, str]) -> Optional[str]:
    """Slurm's own number of this job, if `slurm_job_id` names it as a task of an array.

    A job that was submitted inside an array task inherits SLURM_ARRAY_*, and takes itself for that task.
    Nothing on the node tells the two apart; in the queue the number does.
    """
    job_id = env.get("SLURM_JOB_ID") or None
    return job_id if job_id != slurm_job_id(env) else None


def is_first_node(env: Mapping[str, str]) -> bool:
    """True on the node where rank 0 runs, and outside Slurm."""
    return env.get("SLURM_NODEID", "0") in ("", "0") and is_first_task(env)


def is_first_task(env: Mapping[str, str]) -> bool:
    """True for the first task of a step on its node, and outside Slurm."""
    return env.get("SLURM_LOCALID", "0") in ("", "0")
