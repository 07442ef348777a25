"""Read the queue rows of jobs on which the user is about to act: name, owner, state, time limit.

They are requested before every action, because the data on a screen may be a minute old.
"""

from __future__ import annotations

from collections.abc import Iterable

from coach.model.slurm.job_action import QueuedJob
from coach.sources.io import Query, new_separator
from coach.sources.slurm.text import (
    columns_option,
    optional,
    parse_duration,
    parse_time,
    parse_whole,
    split_records,
)

_FIELDS = (
    *("jobarrayid", "jobid", "username", "state"),
    *("submittime", "timelimit", "timeused", "requeue", "numnodes", "reason"),
    "name",
)


def job_rows_query(job_ids: Iterable[str]) -> Query:
    """All rows of these jobs and arrays in one request, including jobs that have just ended. Takes ids of
    whole arrays, not of tasks."""
    separator, record_end = new_separator(), new_separator()
    columns = columns_option(_FIELDS, separator, record_end)
    argv = ("squeue", "-h", "-a", "-t", "all", "-j", ",".join(job_ids), "-O", columns)
    return Query("job-rows", argv, separator, record_end)


def parse_job_rows(text: str, separator: str, record_end: str) -> tuple[QueuedJob, ...]:
    """The rows; a malformed one is left out, so no action affects its job."""
    records = split_records(text, separator, record_end)
    return tuple(_job(record) for record in records if len(record) == len(_FIELDS))


def _job(record: list[str]) -> QueuedJob:
    row = dict(zip(_FIELDS, record, strict=True))
    return QueuedJob(
        job_id=row["jobarrayid"],
        raw_job_id=row["jobid"],
        user=row["username"],
        state=row["state"],
        reason=optional(row["reason"]),
        submit_time_s=parse_time(row["submittime"]),
        time_limit_s=parse_duration(row["timelimit"]),
        time_used_s=parse_duration(row["timeused"]),
        can_requeue={"0": False, "1": True}.get(row["requeue"].strip()),
        num_nodes=parse_whole(row["numnodes"].strip()),
        name=row["name"],
    )
