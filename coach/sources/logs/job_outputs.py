"""Find the output files of jobs that coach did not launch.

Rows of the user's own queue contain the paths, so usually no query is needed. For the other jobs squeue is
asked, with one query for all of them. For a job that Slurm has forgotten, coach's record of the queue is
used, then the accounting database.
"""

from __future__ import annotations

import errno
import math
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from coach.model.reading import JobRow, Reading
from coach.model.slurm.cluster import Job, is_final
from coach.sources.io import CommandResult, Io, Query, new_separator
from coach.sources.logs.output_path import output_options, output_paths
from coach.sources.slurm.job_summaries import JobSummaries
from coach.sources.slurm.queue import jobs_by_id_query, parse_jobs
from coach.sources.slurm.text import failure_words, optional, parse_time

QUESTION = "job-files"
"""Prefix of the kind of each query in this module."""

_RETRY_S = 30.0
ROW_INTERVAL_S = 60.0
_NUMBER = re.compile(r"\d+")
_MINUTES = re.compile(r"[0-9]{1,9}")
_COMPONENT = re.compile(r"\+\d+$")
_ALWAYS = (
    *("JobID", "JobIDRaw", "User", "State", "NodeList", "Submit", "Start", "End", "TimelimitRaw", "WorkDir"),
)
_TOLD = (*_ALWAYS, "StdOut", "StdErr", "JobName")
"""Fields with the paths, which accounting stores since 24.05."""
_SUBMITTED = (*_ALWAYS, "SubmitLine", "JobName")
"""Older versions store at most the command that submitted the job."""
MAX_NEIGHBOUR_QUERIES = 8
"""The tasks of a large array would ask once each."""
LATE_S = 600.0
"""Seconds after a job's end in which its files may still change: network file systems flush buffers late."""
MAX_NEIGHBOURS_S = 7 * 86400.0
"""The longest span for which accounting is asked for all jobs of a user. A longer one may return
thousands."""


def accounting_query(job_ids: Iterable[str], fields: Sequence[str] = _TOLD) -> Query:
    """A query for these jobs, however long ago they ended."""
    which = ",".join(job_ids)
    return _accounting(f"accounting {which}", ("-j", which), fields)


def neighbours_query(job: Job, now_s: float, fields: Sequence[str]) -> Query | None:
    """A query for the jobs of the same user that ran while this one did or soon after it; None if its user or
    its times are unknown, or if it ran for longer than MAX_NEIGHBOURS_S."""
    start_s, end_s = job.start_time_s, job.end_time_s
    if not job.user or start_s is None or end_s is None or not 0 <= end_s - start_s <= MAX_NEIGHBOURS_S:
        return None
    since, until = (f"now-{max(0, math.ceil(now_s - time_s))}seconds" for time_s in (start_s, end_s + LATE_S))
    return _accounting(f"neighbours {job.job_id}", ("-u", job.user, "-S", since, "-E", until), fields)


def _accounting(subject: str, which: Sequence[str], fields: Sequence[str]) -> Query:
    separator = new_separator()
    argv = ("sacct", "-n", "-p", "-X", "--delimiter", separator, *which, "-o", ",".join(fields))
    return Query(f"{QUESTION}-{subject}", argv, separator)


def parse_accounting(text: str, separator: str, fields: Sequence[str] = _TOLD) -> list[Job]:
    """Jobs with their paths as given to Slurm. A job without a path in the accounting has the default
    name."""
    words, jobs = text.split(separator), []
    for start in range(0, len(words) - len(fields), len(fields)):
        row = dict(zip(fields, words[start : start + len(fields)], strict=True))
        # A submission is stored without quotes, so its words are split at blanks.
        given = output_options(row["SubmitLine"].split()[1:]) if "SubmitLine" in row else _of_columns(row)
        job_id, state = row["JobID"].lstrip("\n"), row["State"].partition(" ")[0].rstrip("+")
        if not _NUMBER.match(job_id):
            continue
        nodes = optional(row["NodeList"])
        limit = row.get("TimelimitRaw", "")
        job = Job(
            *(job_id, row["JobName"], row["User"], state, None, ""),
            None if nodes == "None assigned" else nodes,
            *(None,) * 5,
            time_limit_s=int(limit) * 60 if _MINUTES.fullmatch(limit) else None,
            submit_time_s=parse_time(row.get("Submit", "")),
            start_time_s=parse_time(row.get("Start", "")),
            end_time_s=parse_time(row.get("End", "")),
            work_dir=optional(row["WorkDir"]),
            raw_job_id=optional(row["JobIDRaw"]),
            stdout=given.get("stdout"),
            stderr=given.get("stderr") if "stdout" in given else None,  # the script may have options too
        )
        jobs.append(job)
    return jobs


def _of_columns(row: dict[str, str]) -> dict[str, str]:
    stdout, stderr = optional(row["StdOut"]), optional(row["StdErr"])
    return {} if stdout is None else {"stdout": stdout, "stderr": stderr or stdout}


def jobs_told(argv: Sequence[str], out: bytes, separator: str, record_end: str) -> Iterable[Job]:
    """The jobs in the answer to any query of this module. Answers without a separator, from old recordings,
    are not read."""
    text = out.decode("utf-8", "surrogateescape")
    if not separator:
        return ()
    if argv[0] == "sacct":
        return parse_accounting(text, separator, argv[-1].split(","))
    return parse_jobs(text, separator, record_end)[0]


class OutputPaths:
    """The output paths of a user's jobs. One thread may add rows of the queue while others look up paths.

    `remembered` returns the jobs that coach saw in the queue, newest first. `summaries` is None if accounting
    must not be asked for job summaries.
    """

    def __init__(
        self, io: Io, remembered: Callable[[], Iterable[Job]] = tuple, *, asks_summaries: bool = False
    ) -> None:
        self._io = io
        self._remembered = remembered
        self._rows: dict[str, Job] = {}
        self._recalled: set[str] = set()
        """Job ids whose row is from coach's record."""
        self._past: dict[str, Job] | None = None
        """Coach's record when it was first read. Later jobs come from the queue."""
        self._neighbours: dict[str, Job] = {}
        """Jobs from accounting that ran beside another job from accounting."""
        self._num_asked = 0
        self._of_accounting: dict[str, Sequence[str]] = {}
        """Id of each job whose row is from accounting, and whose neighbours were not asked for → the fields
        that this accounting has."""
        self._wanted: set[str] = set()
        self._asked_s: dict[str, float] = {}
        self._error = ""
        self._is_queue_known = False
        self._turn = threading.Lock()
        self.summaries = JobSummaries(io, self.known) if asks_summaries else None

    def learn(self, jobs: Iterable[Job], *, is_own_queue: bool = False) -> None:
        """Add rows of the queue. Rows of all users have no paths, but show on which nodes a job has
        started.

        `is_own_queue`: they are all of the user's jobs that Slurm knows. From then on Slurm is not asked for
        a job that coach saw end.
        """
        self._is_queue_known = self._is_queue_known or is_own_queue
        for job in jobs:
            known = self._rows.get(job.job_id)
            if job.stdout is not None:
                self._rows[job.job_id] = job
                self._recalled.discard(job.job_id)
            elif known is not None and known.submit_time_s != job.submit_time_s:
                del self._rows[job.job_id]  # the number was reused, or the job was requeued
            elif known is not None and job.nodes != known.nodes:
                self._rows[job.job_id] = replace(known, nodes=job.nodes)

    def of(self, job_id: str) -> tuple[Path, ...]:
        """Output paths of a job; empty if they depend on its node and it has not started. Raises OSError if
        they are unknown."""
        if "[" in job_id:
            return ()
        # The script of a heterogeneous job runs in its first component; its output is that of the whole job.
        row = self.row(_COMPONENT.sub("+0", job_id)) or self.row(job_id)
        if row is None:
            raise OSError(errno.EIO, f"where job {job_id} writes its log is not known: {self._error}")
        return output_paths(row) or ()

    def user(self, job_id: str) -> str:
        """The user of a job; empty if its row was not read. Makes no query."""
        row = self.known(job_id) or self.known(_COMPONENT.sub("+0", job_id))
        return row.user if row is not None else ""

    def known(self, job_id: str) -> Job | None:
        """The last row of a job that was read; makes no query."""
        return self._rows.get(job_id)

    def forget(self, job_id: str) -> None:
        """Drop the row of a job, so that the next look-up queries it again."""
        self._rows.pop(job_id, None)

    def row(self, job_id: str) -> Job | None:
        """The job, from the queue, else from coach's record, else from the accounting database; None if none
        of them has it."""
        if job_id not in self._rows:
            self._wanted.add(job_id)
            with self._turn:
                if job_id not in self._rows and self._is_due(job_id):
                    self._ask()
        return self._rows.get(job_id)

    def parts(self, job_id: str) -> list[Job]:
        """The tasks of an array, or the components of a heterogeneous job: Slurm's rows, then coach's record,
        newest first. If the job id was reused, those of the newest job."""
        self.row(job_id)
        rows = list(self._rows.values())  # another thread may add one meanwhile
        found = [row for row in rows if _is_part_of(row.job_id, job_id)]
        newest = max(found, key=lambda row: row.submit_time_s or 0.0, default=None)
        # Another cluster, or a new installation of this one, reuses job ids. Parts of one job have the same
        # name and directory.
        alike = [
            row for row in found if newest and (row.name, row.work_dir) == (newest.name, newest.work_dir)
        ]
        return sorted(alike, key=lambda row: row.job_id in self._recalled)

    def has_left(self, job_id: str) -> bool:
        """True if the queue no longer has a job that was last seen in it, and its end is not known."""
        return job_id in self._recalled and not is_final(self._rows[job_id].state)

    def others(self, job: Job) -> list[Job]:
        """The other known jobs that ran while this one did or near it, so that a file may be theirs; also
        those that Slurm has forgotten. For a job from accounting, accounting is asked once for those that
        coach has never seen."""
        self._ask_neighbours(job)
        if self._past is None:
            self._past = {row.job_id: row for row in reversed(list(self._remembered()))}
        start_s, end_s = span_of(job)
        whole = _COMPONENT.sub("", job.job_id)
        return [
            row
            for row in {**self._neighbours, **self._past, **self._rows}.values()
            if row.job_id != job.job_id and _COMPONENT.sub("", row.job_id) != whole and _has_run(row)
            if span_of(row)[0] <= end_s + LATE_S and span_of(row)[1] >= start_s - LATE_S
        ]

    def _is_due(self, job_id: str) -> bool:
        asked_s = self._asked_s.get(job_id)
        return asked_s is None or not 0 <= self._io.now() - asked_s < _RETRY_S

    def _ask(self) -> None:
        """Query all wanted jobs that are still unknown."""
        if self._is_queue_known:
            self._take(self._seen_to_end(), self._wanted - self._rows.keys())
        wanted = self._wanted - self._rows.keys()
        if not wanted:
            return
        self._asked_s.update(dict.fromkeys(wanted, self._io.now()))
        result = self._io.run(jobs_by_id_query(_numbers(wanted)))
        self._error = _failure(result) or "Slurm has forgotten the job"
        if result.returncode == 0:
            self._take(_jobs_of(result), wanted)
        if missing := wanted - self._rows.keys():
            known = set(self._rows)
            self._take(self._remembered(), missing)
            self._recalled |= self._rows.keys() - known
        if missing := wanted - self._rows.keys():
            self._take(self._ask_accounting(missing), missing)

    def _seen_to_end(self) -> list[Job]:
        """The remembered jobs that had ended when they were last seen."""
        newest = {job.job_id: job for job in reversed([*self._remembered()])}
        return [job for job in newest.values() if is_final(job.state)]

    def _ask_accounting(self, job_ids: Iterable[str]) -> Iterable[Job]:
        for fields in (_TOLD, _SUBMITTED):
            result = self._io.run(accounting_query(_numbers(job_ids), fields))
            if result.returncode == 0:
                found = list(_jobs_of(result))
                self._of_accounting.update((job.job_id, fields) for job in found)
                return found
            if "Invalid field" not in result.stderr:
                break
        return ()

    def _ask_neighbours(self, job: Job) -> None:
        fields = self._of_accounting.pop(job.job_id, None)
        query = neighbours_query(job, self._io.now(), fields) if fields is not None else None
        if query is None or self._num_asked == MAX_NEIGHBOUR_QUERIES:
            return
        self._num_asked += 1
        result = self._io.run(query)
        if result.returncode == 0:
            self._neighbours.update((row.job_id, row) for row in _jobs_of(result))

    def _take(self, jobs: Iterable[Job], wanted: set[str]) -> None:
        for job in jobs:
            is_wanted = job.job_id in wanted or any(_is_part_of(job.job_id, each) for each in wanted)
            if is_wanted and job.job_id not in self._rows:
                self._rows[job.job_id] = job


class JobRowSource:
    """Asks Slurm for the row of one job: once a minute if it is another user's and has not ended.

    Own jobs that are active are in the queue. For an ended job it also delivers the measurements of the
    site's jobstats, if accounting may be asked.
    """

    name = "row"

    def __init__(self, io: Io, job_id: str, paths: OutputPaths, user: str) -> None:
        self.interval_s = ROW_INTERVAL_S
        self._io = io
        self._job_id = job_id
        self._paths = paths
        self._user = user
        if paths.summaries is not None:
            paths.summaries.want([job_id])
        self._asked_s: float | None = None

    def poll(self) -> Iterable[Reading]:
        start_s = self._io.now()
        if self._is_old(start_s):
            self._paths.forget(self._job_id)
            self._asked_s = None
        if self._asked_s is None:
            self._asked_s = start_s
        job = self._paths.row(self._job_id)
        summaries = self._paths.summaries
        summary = summaries.of(self._job_id) if summaries is not None else None
        end_s = self._io.now()
        row = JobRow(self._job_id, job, summary)
        yield Reading(self.name, end_s, end_s - start_s, row, target=self._job_id)

    def _is_old(self, now_s: float) -> bool:
        known = self._paths.known(self._job_id)
        if self._asked_s is None or known is None or known.user == self._user or is_final(known.state):
            return False
        return not 0 <= now_s - self._asked_s < ROW_INTERVAL_S / 2


def _is_part_of(job_id: str, whole: str) -> bool:
    return whole.isdecimal() and job_id.startswith((f"{whole}_", f"{whole}+"))


def _has_run(job: Job) -> bool:
    """False for a job that waits, or was cancelled before its start."""
    return job.state != "PENDING" and not (is_final(job.state) and job.nodes is None)


def span_of(job: Job) -> tuple[float, float]:
    """The start and the end of a job, in epoch seconds: for an unknown start its submission, for an end that
    was not seen its time limit, with LATE_S for Slurm's grace."""
    start_s = next((each for each in (job.start_time_s, job.submit_time_s) if each is not None), 0.0)
    if is_final(job.state):
        return start_s, job.end_time_s if job.end_time_s is not None else math.inf
    if job.start_time_s is None or job.time_limit_s is None:
        return start_s, math.inf
    return start_s, start_s + job.time_limit_s + LATE_S


def _numbers(job_ids: Iterable[str]) -> list[str]:
    found = (_NUMBER.match(job_id) for job_id in job_ids)
    return sorted({match[0] for match in found if match is not None}, key=int)


def _jobs_of(result: CommandResult) -> Iterable[Job]:
    query = result.query
    return jobs_told(query.argv, result.stdout, query.separator, query.record_end)


def _failure(result: CommandResult) -> str | None:
    if result.returncode == 0:
        return None
    return (
        result.error
        or failure_words(result.stderr)
        or f"{result.query.argv[0]}: exit status {result.returncode}"
    )
