"""Read the queue rows of jobs on which the user is about to act: owner, state, time limit.

They are requested before every action, because the data on a screen may be a minute old. No field but the
reason can contain free text, so a fixed separator is enough; the reason, which a site's plugin may word, is
last.
"""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.slurm.job_action import QueuedJob
from coach.sources.io import Query
from coach.sources.slurm.text import optional, parse_duration, parse_time, parse_whole

_FIELDS = (
    *("jobarrayid", "jobid", "username", "state"),
    *("submittime", "timelimit", "timeused", "requeue", "numnodes", "reason"),
)
_SEPARATOR = "|"


def job_rows_query(job_ids: Iterable[str]) -> Query:
    """All rows of these jobs and arrays in one request, including jobs that have just ended. Takes ids of
    whole arrays, not of tasks."""
    columns = ",".join(f"{field}:{_SEPARATOR}" for field in _FIELDS)
    argv = ("squeue", "-h", "-a", "-t", "all", "-j", ",".join(job_ids), "-O", columns)
    return Query("job-rows", argv)


def parse_job_rows(text: str) -> tuple[QueuedJob, ...]:
    """The rows; a malformed one is left out, so no action affects its job."""
    records = (line.split(_SEPARATOR, len(_FIELDS) - 1) for line in text.splitlines())
    return tuple(_job(record) for record in records if len(record) == len(_FIELDS))


def _job(record: list[str]) -> QueuedJob:
    row = dict(zip(_FIELDS, record, strict=True))
    return QueuedJob(
        job_id=row["jobarrayid"],
        raw_job_id=row["jobid"],
        user=row["username"],
        state=row["state"],
        reason=optional(row["reason"].rstrip(_SEPARATOR)),
        submit_time_s=parse_time(row["submittime"]),
        time_limit_s=parse_duration(row["timelimit"]),
        time_used_s=parse_duration(row["timeused"]),
        can_requeue={"0": False, "1": True}.get(row["requeue"].strip()),
        num_nodes=parse_whole(row["numnodes"].strip()),
    )
