"""Read jobstats summaries of ended jobs from the accounting database. A site's jobstats writes them.

One call of sacct requests the summaries of many jobs. jobstats writes a summary some seconds after a job's
end, so coach requests a missing summary again if the job ended only recently.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from coach.model.slurm.accounting import JobSummary
from coach.model.slurm.cluster import Job, is_final
from coach.sources.io import Io, Query, new_separator
from coach.sources.slurm.jobstats import parse_summary

KIND = "job-summaries"
TIMEOUT_S = 5.0
"""If the database is stopped, sacct hangs for 45 s."""
AGAIN_S = 60.0
"""Seconds between two requests for the same missing summary."""
LATE_S = 600.0
"""A summary may appear until this many seconds after the job's end. After a failed call, coach makes no call
for the same time."""
MAX_JOBS = 500
"""Largest number of jobs in one call."""

_FIELDS = ("JobID", "AdminComment")


def summaries_query(job_ids: Iterable[str]) -> Query:
    """The query for the admin comments of these jobs, in which jobstats stores its summaries."""
    separator = new_separator()
    argv = ("sacct", "-n", "-p", "-X", "--delimiter", separator, "-j", ",".join(job_ids))
    return Query(KIND, (*argv, "-o", ",".join(_FIELDS)), separator)


def parse_summaries(text: str, separator: str) -> Mapping[str, JobSummary]:
    """Job id → summary, for the jobs that have one."""
    words = text.split(separator) if separator else []
    found = {}
    for start in range(0, len(words) - len(_FIELDS), len(_FIELDS)):
        job_id, comment = words[start : start + len(_FIELDS)]
        if (summary := parse_summary(comment)) is not None:
            found[job_id.lstrip("\n")] = summary
    return found


class JobSummaries:
    """The summaries, shared by all threads that follow jobs. `row` returns a job's known row, which shows if
    the job has ended: only an ended job has a summary."""

    def __init__(self, io: Io, row: Callable[[str], Job | None]) -> None:
        self._io = io
        self._row = row
        self._wanted: dict[str, float | None] = {}
        """Job id → time of the last request that was answered; None before."""
        self._left: set[str] = set()
        """Ids of the jobs whose summaries are not requested."""
        self._found: dict[str, JobSummary] = {}
        self._failed_s: float | None = None
        self._turn = threading.Lock()

    def want(self, job_ids: Iterable[str]) -> None:
        """Add jobs. The first call of `of` for one of them requests all of them."""
        with self._turn:
            for job_id in job_ids:
                self._wanted.setdefault(job_id, None)

    def leave(self, job_id: str) -> None:
        """Never request this job's summary, unless it was requested before."""
        with self._turn:
            if self._wanted.get(job_id) is None:
                self._left.add(job_id)

    def of(self, job_id: str) -> JobSummary | None:
        """The job's summary, requested if necessary; None if there is none, or none yet."""
        with self._turn:
            self._wanted.setdefault(job_id, None)
            if job_id not in self._found and self._is_due(job_id):
                self._ask()
            return self._found.get(job_id)

    def _is_due(self, job_id: str) -> bool:
        job, now_s = self._row(job_id), self._io.now()
        if job is None or not is_final(job.state) or "[" in job_id or job_id in self._left:
            return False
        if self._failed_s is not None and 0 <= now_s - self._failed_s < LATE_S:
            return False
        asked_s = self._wanted[job_id]
        if asked_s is None:
            return True
        is_late = job.end_time_s is None or now_s - job.end_time_s >= LATE_S
        return not is_late and not 0 <= now_s - asked_s < AGAIN_S

    def _ask(self) -> None:
        due = [job_id for job_id in self._wanted if job_id not in self._found and self._is_due(job_id)]
        result = self._io.run(summaries_query(due[:MAX_JOBS]), TIMEOUT_S)
        self._failed_s = None if result.returncode == 0 else self._io.now()
        if result.returncode == 0:
            self._wanted.update(dict.fromkeys(due[:MAX_JOBS], self._io.now()))
            text = result.text
            self._found.update(parse_summaries(text, result.query.separator))
