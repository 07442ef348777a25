"""The findings of many jobs in one order: what costs most first. Screens and commands rank by the same measure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from coach.analysis.judging.impact import lost_gpu_hours
from coach.model.judging.finding import Diagnosis, Finding, Severity
from coach.model.slurm.cluster import Job
from coach.model.snapshot import Snapshot, TargetSnapshot

RECENT_S = 86400.0
"""Jobs that ended longer ago are history."""


@dataclass(frozen=True, slots=True)
class RankedFinding:
    """A finding with its job, and what it cost at most; None where nobody knows."""

    target: str
    job_name: str | None
    state: str | None
    finding: Finding
    lost_gpu_hours: float | None
    ended_s: float | None
    """When the job ended; None while it runs, or where nobody knows."""


def ranked_of(diagnosis: Diagnosis, target: TargetSnapshot) -> tuple[RankedFinding, ...]:
    """The findings of one target."""
    name = (
        target.job.name if target.job is not None else target.run.recipe if target.run is not None else None
    )
    ended_s = target.now_s if target.has_ended else None
    return tuple(
        RankedFinding(diagnosis.target, name, target.state, finding, lost_gpu_hours(finding, target), ended_s)
        for finding in diagnosis.findings
    )


def ranked_findings(snapshot: Snapshot, ended: Mapping[str, Job]) -> dict[str, tuple[RankedFinding, ...]]:
    """Those of each target that is followed and was judged. `ended` are jobs that the queue may have forgotten."""
    found = {}
    for name, diagnosis in snapshot.diagnoses.items():
        target = snapshot.targets.get(name)
        if target is not None and target.job is None and target.run is None and name in ended:
            target = replace(target, job=ended[name], now_s=ended[name].end_time_s)
        if target is not None:
            found[name] = ranked_of(diagnosis, target)
    return found


def by_impact(found: Mapping[str, Iterable[RankedFinding]], now_s: float) -> list[RankedFinding]:
    """Those of jobs that run or ended within a day: causes before what follows from them, then by cost, then by severity."""
    recent = [
        each
        for findings in found.values()
        for each in findings
        if each.ended_s is None or now_s - each.ended_s <= RECENT_S
    ]
    recent.sort(
        key=lambda each: (
            each.finding.consequence_of is not None,
            -(each.lost_gpu_hours or 0.0),
            -each.finding.severity,
            each.target,
        )
    )
    return recent


def went_wrong(found: Mapping[str, Iterable[RankedFinding]], now_s: float) -> list[RankedFinding]:
    """Of each job that went wrong its worst cause, in the order of `coach check`: by severity, then by cost. A remark is nothing wrong."""
    of_job: dict[str, RankedFinding] = {}
    for each in sorted(
        by_impact(found, now_s), key=lambda each: (-each.finding.severity, not each.finding.is_primary)
    ):
        if each.finding.severity > Severity.INFO and each.finding.consequence_of is None:
            of_job.setdefault(each.target, each)
    return sorted(of_job.values(), key=lambda each: (-each.finding.severity, -(each.lost_gpu_hours or 0.0)))


def worst(found: Mapping[str, Iterable[RankedFinding]], now_s: float) -> RankedFinding | None:
    """The gravest of all, of those the most costly; a remark is none."""
    causes = [each for each in by_impact(found, now_s) if each.finding.severity > Severity.INFO]
    return min(causes, key=lambda each: (-each.finding.severity, -(each.lost_gpu_hours or 0.0)), default=None)
