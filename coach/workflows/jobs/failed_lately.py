"""List own jobs that failed today and that Slurm may have forgotten, from coach's own memory.

Kept apart from the history because the first screen needs it at once: it reads one file and asks Slurm
nothing.
"""

from __future__ import annotations

from coach.analysis.judging.ranking import RECENT_S
from coach.analysis.judging.why_words import is_bad_state
from coach.config import DEFAULT_CLUSTER, Settings
from coach.model.slurm.accounting import PastJob
from coach.sources.runs.seen_jobs import SeenJobs
from coach.workflows.jobs.ended_jobs import PastJobs

_MAX_FAILED = 8
"""Each one costs a few files, a judgement, and a share of a `squeue -j` for four, when the screens open."""


def failed_lately(settings: Settings, user: str, now_s: float) -> PastJobs:
    """Own jobs that were seen to end badly within a day, the newest of them. Reads one file."""
    newest: dict[str, PastJob] = {}
    remembered, num_torn = SeenJobs(settings.cache_dir).read()
    cluster = settings.cluster if settings.cluster != DEFAULT_CLUSTER else None
    for each in remembered:
        if each.job.user == user and (None in (cluster, each.job.cluster) or each.job.cluster == cluster):
            newest.setdefault(each.job.job_id, each)  # it may have been requeued since it failed
    failed = [
        each
        for each in newest.values()
        if is_bad_state(each.job.state)
        and "[" not in each.job.job_id
        and now_s - RECENT_S <= (each.job.end_time_s or 0.0) <= now_s
    ]
    failed.sort(key=lambda each: -(each.job.end_time_s or 0.0))
    return PastJobs(tuple(failed[:_MAX_FAILED]), (), num_torn)
