"""List own ended jobs from coach's memory, with the verdicts that were kept of them.

Kept apart from the history because the first screen needs it at once: it reads two files and asks Slurm
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from coach.analysis.judging.ranking import RECENT_S
from coach.config import DEFAULT_CLUSTER, Settings
from coach.model.judging.finding import Diagnosis, Finding, Severity, Subject, Verdict
from coach.model.judging.verdict import PastRun
from coach.model.slurm.accounting import PastJob
from coach.model.slurm.cluster import Job, is_final
from coach.sources.runs.seen_jobs import SeenJobs
from coach.sources.runs.verdicts import Verdicts
from coach.workflows.jobs.ended_jobs import PastJobs

_UNKNOWN = "unknown_failure"
"""A verdict of this cause is not used again: lines of the log may have come late."""
_SEVERITIES = {severity.word: severity for severity in Severity}


def remembered(settings: Settings, user: str, now_s: float, past_s: float, limit: int) -> PastJobs:
    """Own jobs that were seen to end within the last `past_s` seconds, at most `limit` of them. Those that
    ended within a day have their kept verdicts."""
    newest: dict[str, PastJob] = {}
    seen, num_torn = SeenJobs(settings.cache_dir).read()
    cluster = settings.cluster if settings.cluster != DEFAULT_CLUSTER else None
    for each in seen:
        if each.job.user == user and (None in (cluster, each.job.cluster) or each.job.cluster == cluster):
            newest.setdefault(each.job.job_id, each)  # it may have been requeued since it failed
    ended = [each for each in newest.values() if _has_ended_within(each.job, now_s, past_s)]
    ended.sort(key=lambda each: -(each.job.end_time_s or 0.0))
    ended = ended[:limit]
    return PastJobs(tuple(ended), (), num_torn, dict(_kept(settings, ended, now_s)))


def _has_ended_within(job: Job, now_s: float, past_s: float) -> bool:
    is_ended = is_final(job.state) and "[" not in job.job_id
    return is_ended and now_s - past_s <= (job.end_time_s or 0.0) <= now_s


def _kept(settings: Settings, ended: Iterable[PastJob], now_s: float) -> Iterator[tuple[str, Diagnosis]]:
    """Job ids with the verdicts that were kept of them."""
    known: Mapping[tuple[str, float | None], PastRun] = Verdicts(settings.cache_dir).read()
    for each in ended:
        past = known.get((each.job.job_id, each.job.submit_time_s))
        if past is not None and _has_ended_within(each.job, now_s, RECENT_S):
            diagnosis = diagnosis_of(past)
            if diagnosis is not None:
                yield each.job.job_id, diagnosis


def diagnosis_of(past: PastRun) -> Diagnosis | None:
    """The kept verdict as a diagnosis without evidence and fixes; None if the job has to be judged again."""
    if not past.is_judged or not is_final(past.state) or past.cause == _UNKNOWN:
        return None
    if past.rule is None:
        is_healthy = past.has_gone_well
        return Diagnosis(past.target, past.state, (), (), health=Verdict.HEALTHY) if is_healthy else None
    severity = _SEVERITIES.get(past.severity or "")
    if severity is None or past.name is None:  # kept by an older version
        return None
    finding = Finding(
        rule=past.rule,
        name=past.name,
        cause=past.cause or "",
        severity=severity,
        confidence=1.0 if past.confidence is None else past.confidence,
        is_primary=True,
        consequence_of=None,
        subject=Subject(past.node),
        summary=past.summary or "",
        evidence=(),
        fixes=(),
        since_s=None,
    )
    return Diagnosis(past.target, past.state, (finding,), ())
