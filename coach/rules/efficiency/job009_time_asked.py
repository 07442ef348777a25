"""JOB009: far more time was requested than used."""

from __future__ import annotations

from collections.abc import Iterable

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.other_machine import rough_age
from coach.rules.base import Need, Rule, Threshold


class TimeAsked(Rule):
    """A completed job used little of the time that it requested.

    What it sees
        The job's run time compared with its time limit, from the queue or the accounting.
    Why it matters
        A shorter limit fits into gaps that the scheduler fills (backfill): such a job starts sooner.
    When it stays silent
        Unless the job completed, on limits of less than two hours, and where more than a quarter was used.
    What to do
        Request about twice the run time, but not less: a job that reaches its limit is killed.
    Sources
        Princeton jobstats (below 10 % red); slurmpast; slurm.conf(5), backfill.
    """

    code = "JOB009"
    name = "time-asked"
    cause = "time_over_request"
    severity = Severity.INFO
    needs = (Need.JOB_STATE,)
    used_share = Threshold(0.25, "of the limit", "between jobstats' red line (0.1) and slurmpast's (0.5)")
    min_limit_s = Threshold(7200, "seconds", "shorter limits fit into gaps as they are")
    min_s = Threshold(300, "seconds", "a shorter run was a try")

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        job = snapshot.job
        if job is None or snapshot.state != "COMPLETED" or not job.time_limit_s:
            return
        took = _took_s(job)
        if took is None or took < self.min_s or job.time_limit_s < self.min_limit_s:
            return
        share = took / job.time_limit_s
        if share >= self.used_share:
            return
        hours = f"{max(1, round(2 * took / 3600)):02d}:00:00"
        yield Hit(
            summary=f"It took {rough_age(took)} of the {rough_age(job.time_limit_s)} that were requested",
            evidence=(
                Evidence("share of the time limit that was used", value=round(share, 3), unit="of the limit"),
            ),
            confidence=0.9,
            fixes=(Fix(f"Time limit → {hours} the next time: it may start sooner", {"time": hours}),),
        )


def _took_s(job: Job) -> float | None:
    if job.time_used_s is not None:
        return float(job.time_used_s)
    if job.start_time_s is None or job.end_time_s is None:
        return None
    return job.end_time_s - job.start_time_s
