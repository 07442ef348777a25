"""Record the user's own jobs that were seen in the queue, in the cache: without accounting, nothing else
remembers them.

Slurm forgets a job minutes after its end. Each change of a job appends a line to one JSON Lines file, under a
lock, because several coaches of one user write to it. From time to time the file is reduced to the last lines
of the newest jobs. A malformed line is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import nlargest
from pathlib import Path
from typing import Any

from coach import runs
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.cluster import Job, is_final, job_as_dict
from coach.sources.values import Fields, finite, text
from coach.trusted import private_folder, read_tail

FILE_NAME = "seen-jobs.jsonl"
MAX_JOBS = 2000
"""Largest number of jobs that are kept, the newest ones: about one megabyte. A longer queue is cut to this
number before it is written: its jobs would displace each other in the file at every look."""
_MAX_FILE_BYTES = 8 << 20
_MAX_TEXT = 4096

_KEPT = frozenset(
    {
        *("job_id", "name", "user", "state", "reason", "partition", "nodes", "account", "qos", "work_dir"),
        *("raw_job_id", "dependency", "reservation", "command", "stdout", "stderr", "cluster"),
        *("num_nodes", "num_cpus", "num_gpus", "time_limit_s", "exit_code", "num_requeues"),
        *("submit_time_s", "start_time_s", "end_time_s"),
    }
)
_JOB = Fields(Job, _KEPT)
_Key = tuple[str | None, str, float | None]


class SeenJobs:
    """The recorded jobs of one user. Used by one thread at a time."""

    def __init__(self, cache_dir: Path) -> None:
        self._file = cache_dir / FILE_NAME
        self._told: dict[_Key, tuple[object, ...]] | None = None
        """What the file already contains: a queue that does not change costs no write."""

    def remember(self, jobs: Iterable[Job], user: str, now_s: float) -> int:
        """Record the changes of this user's jobs; returns their number. Raises OSError if the cache cannot be
        written."""
        if self._told is None:
            self._told = _told(self._records()[0])
        lines = []
        told: dict[_Key, tuple[object, ...]] = {}
        for job in _worth_keeping([job for job in jobs if job.user == user]):
            key = _key(job)
            before, told[key] = self._told.get(key), _changing(job)
            if before is not None and before[-1] and not job.command:
                told[key] = (*told[key][:-1], True)  # the query for all users does not return scripts
            if before != told[key]:
                lines.append(runs.encode_record({**_as_record(job), "seen_s": now_s}))
        if lines:
            private_folder(self._file.parent)
            with runs.locked(self._file):
                self._append(b"".join(lines))
        self._told = told
        return len(lines)

    def read(self) -> tuple[tuple[PastJob, ...], int]:
        """All jobs as they were last seen, newest first, and the number of malformed lines."""
        newest, num_bad = self._newest()
        ordered = sorted(newest.values(), key=lambda seen: -(seen.last_seen_s or 0.0))
        return tuple(ordered[:MAX_JOBS]), num_bad

    def _newest(self) -> tuple[dict[_Key, PastJob], int]:
        """The last line of each job in the file, and the number of malformed lines."""
        records, num_bad = self._records()
        newest: dict[_Key, PastJob] = {}
        for record in records:
            seen = _parse(record)
            if seen is None:
                num_bad += 1
            else:
                newest[_key(seen.job)] = _completed(seen, newest.get(_key(seen.job)))
        return newest, num_bad

    def _records(self) -> tuple[list[dict[str, Any]], int]:
        try:
            data = read_tail(self._file, _MAX_FILE_BYTES, owner=os.geteuid())
        except OSError:
            return [], 0
        records, num_bad, _ = runs.decode_records(data)
        return records, num_bad

    def _append(self, data: bytes) -> None:
        with open(self._file, "ab") as file:
            if read_tail(self._file, 1, owner=os.geteuid()) not in (b"", b"\n"):
                file.write(b"\n")
            file.write(data)
            size = file.tell()
        self._file.chmod(0o600)
        if size > _MAX_FILE_BYTES // 2:
            kept, _ = self.read()
            lines = [
                runs.encode_record({**_as_record(each.job), "seen_s": each.last_seen_s})
                for each in reversed(kept)
            ]
            runs.write_atomic(self._file, b"".join(lines).decode())
            self._file.chmod(0o600)


def _worth_keeping(own: list[Job]) -> list[Job]:
    """The jobs to record, MAX_JOBS at most: started jobs before pending ones, newest first. Only started jobs
    leave something to look back at."""
    if len(own) <= MAX_JOBS:
        return own
    return nlargest(MAX_JOBS, own, key=lambda job: (job.state != "PENDING", job.submit_time_s or 0.0))


def _completed(seen: PastJob, before: PastJob | None) -> PastJob:
    """Keep the script and the paths that a later line does not contain."""
    if before is None or seen.job.command is not None:
        return seen
    earlier = before.job
    return replace(
        seen,
        job=replace(
            seen.job,
            command=earlier.command,
            stdout=seen.job.stdout or earlier.stdout,
            stderr=seen.job.stderr or earlier.stderr,
        ),
    )


def _key(job: Job) -> _Key:
    """A reinstalled cluster starts its job ids anew: the submission time distinguishes the jobs. A requeue
    sets a new submission time as well."""
    return job.cluster, job.job_id, job.submit_time_s


def _changing(job: Job) -> tuple[object, ...]:
    """The values of a job whose change is recorded."""
    has_started = job.state != "PENDING"
    started = (job.nodes, job.start_time_s) if has_started else (None, None)
    return job.state, *started, bool(job.command)


def _told(records: Iterable[Mapping[str, Any]]) -> dict[_Key, tuple[object, ...]]:
    """The result of `_changing` for each job in a file. It creates no jobs, because each command starts with
    this."""
    told: dict[_Key, tuple[object, ...]] = {}
    for record in records:
        state, job_id = text(record.get("state")), text(record.get("job_id"))
        if state is None or job_id is None:
            continue
        key = text(record.get("cluster")), job_id, finite(record.get("submit_time_s"))
        started = (text(record.get("nodes")), finite(record.get("start_time_s")))
        has_command = text(record.get("command")) is not None or bool(key in told and told[key][-1])
        told[key] = state, *(started if state != "PENDING" else (None, None)), has_command
    return told


def _as_record(job: Job) -> dict[str, Any]:
    record = {}
    for name, value in job_as_dict(job).items():
        if name in _KEPT and value is not None:
            record[name] = value[:_MAX_TEXT] if isinstance(value, str) else value
    if len(job.command or "") > _MAX_TEXT:
        del record["command"]  # a part of it would run with other arguments
    if job.state == "PENDING":
        record.pop("start_time_s", None)  # a forecast, not a fact
    if not is_final(job.state):
        record.pop("end_time_s", None)
    return record


def _parse(record: Mapping[str, Any]) -> PastJob | None:
    values = _JOB.read(record)
    if None in (values["job_id"], values["state"]):
        return None
    for name in ("name", "user", "partition"):
        values[name] = values[name] or ""
    start_s, end_s = values["start_time_s"], values["end_time_s"]
    used_s = finite(end_s - start_s) if start_s is not None and end_s is not None else None
    job = Job(
        **values, time_used_s=int(used_s) if used_s is not None and used_s >= 0 else None, time_left_s=None
    )
    return PastJob(job, source="seen", last_seen_s=finite(record.get("seen_s")))


def remember_jobs(seen: SeenJobs, jobs: Iterable[Job], user: str, now_s: float) -> str | None:
    """Record own jobs in the queue. Returns the error, if any: a full disk is no reason to hide the queue."""
    try:
        seen.remember(jobs, user, now_s)
    except OSError as error:
        return f"jobs are not remembered: {error.strerror or error}"
    return None
