"""The queue: what is asked of squeue, and its answer as jobs.

One call serves every screen. `-t all` costs the controller nothing more (squeue filters states itself) and
shows jobs that ended within MinJobAge; GPUs are read from four columns, because without slurmdbd the
allocated TRES have no GPUs, and what was asked by --gpus stands in another column than what was asked by
--gres. All functions are pure but for the random separators.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from sys import intern

from coach.model.slurm.cluster import Job, is_final
from coach.sources.io import Query, new_separator
from coach.sources.slurm.gres import count_gpus
from coach.sources.slurm.text import (
    BadRow,
    optional,
    parse_count,
    parse_duration,
    parse_exit_code,
    parse_time,
    parse_whole,
    split_records,
)

_FIRST_FIELDS = (
    *(
        "jobarrayid",
        "username",
        "state",
        "reason",
        "partition",
        "nodelist",
        "numnodes",
        "numcpus",
        "numtasks",
    ),
    *("tres-alloc", "tres-per-job", "tres-per-node", "tres-per-task"),
    *("timeused", "timeleft", "timelimit", "submittime", "starttime", "endtime"),
    *("account", "qos", "exit_code", "workdir"),
)
_MORE_FIELDS = ("jobid", "dependency", "reservation", "prioritylong", "schednodes", "restartcnt")
_OWN_FIELDS = ("command", "stdout", "stderr")
_ALL_JOBS = (*_FIRST_FIELDS, *_MORE_FIELDS, "name")
_OWN_JOBS = (*_FIRST_FIELDS, *_MORE_FIELDS, *_OWN_FIELDS, "name")
_LAYOUTS = {len(fields): fields for fields in ((*_FIRST_FIELDS, "name"), _ALL_JOBS, _OWN_JOBS)}
"""Number of fields of a record → which they are. The shortest is what recordings of earlier versions hold."""

_JOB_ID = re.compile(r"^\d{1,15}(?:_(?:\d{1,15}|\[[^\]]*\])|\+\d{1,15})?$")
_STATE = re.compile(r"^[A-Z][A-Z_]*$")
_CLUSTER = re.compile(r"^CLUSTER: (\S+)(?:\n+|$)")


def jobs_query(user: str | None, cluster: str | None = None) -> Query:
    """Everybody's jobs in all partitions, or one user's (which the controller filters: cheap however long the
    queue is).

    `cluster` asks another cluster that the accounting database knows.
    """
    fields = _ALL_JOBS if user is None else _OWN_JOBS
    separator, record_end = new_separator(), new_separator()
    columns = [f"{field}:{separator}" for field in fields[:-1]] + [f"{fields[-1]}:{record_end}"]
    whose = () if user is None else ("-u", user)
    where = () if cluster is None else (f"-M{cluster}",)
    argv = ("squeue", *where, "-h", "-a", "-t", "all", "--noconvert", *whose, "-O", ",".join(columns))
    return Query("jobs" if cluster is None else f"jobs {cluster}", argv, separator, record_end)


def jobs_by_id_query(job_ids: Sequence[str]) -> Query:
    """These jobs, whoever's they are, with the paths of their output."""
    separator, record_end = new_separator(), new_separator()
    columns = [f"{field}:{separator}" for field in _OWN_JOBS[:-1]] + [f"{_OWN_JOBS[-1]}:{record_end}"]
    which = ",".join(job_ids)
    argv = ("squeue", "-h", "-a", "-t", "all", "--noconvert", "-j", which, "-O", ",".join(columns))
    return Query(f"job-files {which}", argv, separator, record_end)


def parse_jobs(
    text: str, separator: str, record_end: str, cluster: str | None = None
) -> tuple[tuple[Job, ...], int]:
    """The jobs, and the number of records that could not be read. `cluster` is the one that was asked by
    name."""
    jobs: list[Job] = []
    num_bad = 0
    for record in split_records(text, separator, record_end):
        while (heading := _CLUSTER.match(record[0])) is not None:
            # With -M some versions say whose rows follow, before the first of them.
            cluster = heading[1]
            record[0] = record[0][heading.end() :]
        if record == [""]:
            continue
        try:
            jobs.append(_parse_job(record, cluster))
        except BadRow:
            num_bad += 1
    return tuple(jobs), num_bad


def _parse_job(record: list[str], cluster: str | None) -> Job:
    fields = _LAYOUTS.get(len(record))
    if fields is None:
        raise BadRow(f"{len(record)} fields")
    row = dict(zip(fields, record, strict=True))
    job_id, state = row["jobarrayid"], row["state"]
    if not _JOB_ID.match(job_id) or not _STATE.match(state) or not row["username"]:
        raise BadRow(f"not a job: {job_id!r} {state!r}")
    has_ended = is_final(state)
    return Job(
        job_id=job_id,
        name=row["name"],
        user=intern(row["username"]),
        state=intern(state),
        reason=optional(row["reason"]),
        partition=intern(row["partition"]),
        nodes=optional(row["nodelist"]),
        num_nodes=parse_count(row["numnodes"]),
        num_cpus=parse_count(row["numcpus"]),
        num_gpus=_count_job_gpus(row),
        time_used_s=parse_duration(row["timeused"]),
        # squeue counts on after the end.
        time_left_s=None if has_ended else parse_duration(row["timeleft"]),
        time_limit_s=parse_duration(row["timelimit"]),
        submit_time_s=parse_time(row["submittime"]),
        start_time_s=parse_time(row["starttime"]),
        end_time_s=parse_time(row["endtime"]),
        account=optional(row["account"]),
        qos=optional(row["qos"]),
        work_dir=optional(row["workdir"]),
        exit_code=_parse_job_exit_code(row["exit_code"], state) if has_ended else None,
        raw_job_id=job_id if row.get("jobid") == job_id else optional(row.get("jobid", "")),
        dependency=optional(row.get("dependency", "")),
        reservation=optional(row.get("reservation", "")),
        priority=parse_whole(row.get("prioritylong", "")),
        scheduled_nodes=optional(row.get("schednodes", "")),
        num_requeues=parse_whole(row.get("restartcnt", "")),
        command=optional(row.get("command", "")),
        stdout=optional(row.get("stdout", "")),
        stderr=optional(row.get("stderr", "")),
        cluster=cluster,
    )


def _parse_job_exit_code(text: str, state: str) -> int | None:
    """Slurm says 0 as well for a script that never started, or was ended from outside."""
    code = parse_exit_code(text)
    return None if code == 0 and state != "COMPLETED" else code


def _count_job_gpus(row: dict[str, str]) -> int | None:
    """GPUs of a whole job: allocated if the site accounts for them, else what was asked per job, node or
    task; 0 when none was."""
    for column, multiplier in (
        ("tres-alloc", None),
        ("tres-per-job", None),
        ("tres-per-node", "numnodes"),
        ("tres-per-task", "numtasks"),
    ):
        if "gpu" not in row[column]:
            continue
        count = count_gpus(row[column])
        if count is not None:
            factor = 1 if multiplier is None else parse_count(row[multiplier])
            return None if factor is None else count * factor
    return 0
