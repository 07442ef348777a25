"""Whether a row of the queue is the job of a run.

A number is no identity: job ids begin at 1 again on a cluster that was set up anew, and two clusters that share a home directory give
the same ones. Followed by its number alone, a run of last year would show, and cancel, somebody's job of today.
"""

from __future__ import annotations

from coach.model.slurm.cluster import Job, is_final
from coach.model.training.run import Run

MAX_CLOCK_SKEW_S = 300.0
"""Between the clock of a login node, by which a run was made, and the controller's, by which its job was submitted."""

MAX_REQUEUE_AFTER_S = 86400.0
"""A job can be requeued after its end only as long as the controller remembers it: minutes, or a day where a site is generous."""


def is_job_of(job: Job, run: Run, cluster: str | None = None) -> bool:
    """Whether this row is the run's job, requeued or not. `cluster` is where the row is from, None when it has no name."""
    if job.job_id != (run.job_id or run.run_id):
        return False
    return run.backend == "local" or (
        not _is_newer(job, run) and fits(run, job.user, job.submit_time_s, cluster)
    )


def _is_newer(job: Job, run: Run) -> bool:
    """Whether it was submitted after the run's own job, and not because that was requeued."""
    if job.num_requeues != 0 or job.submit_time_s is None or run.submitted_time_s is None:
        return False
    return job.submit_time_s > run.submitted_time_s + MAX_CLOCK_SKEW_S


def fits(run: Run, user: str, submitted_s: float | None, cluster: str | None = None) -> bool:
    """Whether a job with this run's number, of this user and submitted then (None: not known), can be the run's."""
    if is_of_another_cluster(run, cluster) or (run.user is not None and user != run.user):
        return False
    made_s = run.created_time_s
    if submitted_s is None:
        return True
    if made_s is not None and submitted_s < made_s - MAX_CLOCK_SKEW_S:
        return False
    ended_s = run.ended_time_s if is_final(run.state) else None
    return ended_s is None or submitted_s <= ended_s + MAX_REQUEUE_AFTER_S


def is_of_another_cluster(run: Run, cluster: str | None) -> bool:
    """Whether both have a name, and not the same."""
    return None not in (run.cluster, cluster) and str(run.cluster).casefold() != str(cluster).casefold()
