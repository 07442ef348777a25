"""A waiting job that asks for more than its partition gives: the facts for the form that submits it again."""

from __future__ import annotations

from coach.analysis.judging.waiting import exceeded_limit_s
from coach.model.slurm.cluster import Job
from coach.render.text import Line
from coach.tui.context import Context
from coach.tui.job_subject import rows_named
from coach.tui.render.pending import never_lines


def partition_limit_s(context: Context, job_id: str) -> int | None:
    """The time limit of its partition, if the job waits because it requests more; else None."""
    job = _waiting(context, job_id)
    return exceeded_limit_s(job, context.snapshot.partitions) if job is not None else None


def why_never_lines(context: Context, job_id: str, width: int) -> list[Line]:
    """Why the job will never start as it is; empty if it may start, or does not wait."""
    job = _waiting(context, job_id)
    return never_lines(job, width, context.snapshot.partitions) if job is not None else []


def _waiting(context: Context, job_id: str) -> Job | None:
    """Its row in the queue, of an array the row of its waiting tasks; None if it does not wait."""
    rows = rows_named(context, job_id, None)
    return next((job for job in rows.parts if job.state == "PENDING"), None) if rows is not None else None
