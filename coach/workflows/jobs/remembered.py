"""List own jobs that went wrong today and that Slurm may have forgotten, from coach's own memory.

Kept apart from the history because the first screen needs it at once: it reads two files and asks Slurm
nothing.
"""

from __future__ import annotations

from coach.analysis.judging.ranking import RECENT_S
from coach.analysis.judging.why_words import is_bad_state
from coach.config import DEFAULT_CLUSTER, Settings
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.cluster import Job
from coach.sources.runs.seen_jobs import SeenJobs
from coach.sources.runs.verdicts import Verdicts
from coach.workflows.jobs.ended_jobs import PastJobs

_MAX_FAILED = 8
"""Each one costs a few files, a judgement, and a share of a `squeue -j` for four, when the screens open."""

_MAX_COMPLETED = 3
"""Of these, jobs that completed with a finding."""


def failed_lately(settings: Settings, user: str, now_s: float) -> PastJobs:
    """Own jobs that were seen to end badly within a day, and those that completed with a finding above info:
    the newest of both."""
    newest: dict[str, PastJob] = {}
    remembered, num_torn = SeenJobs(settings.cache_dir).read()
    cluster = settings.cluster if settings.cluster != DEFAULT_CLUSTER else None
    for each in remembered:
        if each.job.user == user and (None in (cluster, each.job.cluster) or each.job.cluster == cluster):
            newest.setdefault(each.job.job_id, each)  # it may have been requeued since it failed
    today = [each for each in newest.values() if _is_of_today(each.job, now_s)]
    today.sort(key=lambda each: -(each.job.end_time_s or 0.0))
    found = _completed_with_a_finding(settings)
    completed = [each for each in today if (each.job.job_id, each.job.submit_time_s) in found]
    completed = completed[:_MAX_COMPLETED]
    bad = [each for each in today if is_bad_state(each.job.state)][: _MAX_FAILED - len(completed)]
    return PastJobs((*bad, *completed), (), num_torn)


def _is_of_today(job: Job, now_s: float) -> bool:
    return "[" not in job.job_id and now_s - RECENT_S <= (job.end_time_s or 0.0) <= now_s


def _completed_with_a_finding(settings: Settings) -> set[tuple[str, float | None]]:
    """Job ids with their submission times."""
    verdicts = Verdicts(settings.cache_dir).read()
    return {key for key, past in verdicts.items() if past.state == "COMPLETED" and past.rule is not None}
