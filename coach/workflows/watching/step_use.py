"""Slurm's own measurements of running jobs: the peaks of all their steps, by one `sstat` for all jobs, on
demand.

sstat enters no job, so its values are available for a job that coach did not launch before anybody confirms a
step inside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from coach.model.errors import UserError
from coach.model.training.telemetry import StepUse
from coach.sources.io import Io
from coach.sources.slurm.job_allocation import parse_steps, steps_query
from coach.sources.slurm.queue import jobs_query, parse_jobs
from coach.sources.slurm.text import failure_of

_MAX_JOBS = 50
"""sstat asks the nodes of every job it is given."""

StepUses = Mapping[str, tuple[StepUse, ...]]
"""Job id, as srun takes it → its steps."""


def read_step_use(io: Io, user: str) -> StepUses:
    """Ask sstat once. Raises UserError in Slurm's words."""
    queue = io.run(jobs_query(user))
    if (why := failure_of(queue)) is not None:
        raise UserError(why)
    jobs, _ = parse_jobs(queue.text, queue.query.separator, queue.query.record_end)
    ids = [job.raw_job_id for job in jobs if job.state == "RUNNING" and job.raw_job_id is not None]
    if not ids:
        return MappingProxyType({})
    answer = io.run(steps_query(ids[-_MAX_JOBS:]))
    steps = parse_steps(answer.text)
    if not steps and (why := failure_of(answer)) is not None:
        raise UserError(why)
    found: dict[str, tuple[StepUse, ...]] = {}
    for step in steps:
        job_id = step.step_id.partition(".")[0]
        found[job_id] = (*found.get(job_id, ()), step)
    return MappingProxyType(found)
