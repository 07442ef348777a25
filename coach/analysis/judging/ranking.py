"""Rank the findings of many jobs: the most GPU-hours lost first. Screens and commands use the same
measure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from coach.model.judging.finding import Diagnosis, Finding, Severity
from coach.model.slurm.cluster import Job, has_failed
from coach.model.snapshot import Snapshot, TargetSnapshot

RECENT_S = 86400.0
"""Seconds. Jobs that ended longer ago are left out."""
_MANY_CAUSES = frozenset({"code_error", "unknown_failure"})
_NUMBER = re.compile(r"\d[\d.,:]*")


@dataclass(frozen=True, slots=True)
class RankedFinding:
    """A finding with its job, and an upper bound of its cost; None if that is not known."""

    target: str
    job_name: str | None
    state: str | None
    finding: Finding
    lost_gpu_hours: float | None
    ended_s: float | None
    """Time of the job's end; None while it runs, or if that is not known."""


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
    """The findings of each followed target that was judged. `ended` are jobs that the queue may have
    forgotten."""
    found = {}
    for name, diagnosis in snapshot.diagnoses.items():
        target = snapshot.targets.get(name)
        if target is not None and target.job is None and target.run is None and name in ended:
            target = replace(target, job=ended[name], now_s=ended[name].end_time_s)
        if target is not None:
            found[name] = ranked_of(diagnosis, target)
    return found


def by_impact(found: Mapping[str, Iterable[RankedFinding]], now_s: float) -> list[RankedFinding]:
    """Findings of jobs that run, or that ended within a day. Causes come before consequences; then the order
    is by cost, by severity, and by the time of the end, the newest first."""
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
            -_ended_s(each),
            each.target,
        )
    )
    return recent


def went_wrong(found: Mapping[str, Iterable[RankedFinding]], now_s: float) -> list[RankedFinding]:
    """The worst cause of each job that went wrong, in the order of `coach check`: by severity, then by cost.
    Info findings do not count."""
    of_job: dict[str, RankedFinding] = {}
    for each in sorted(
        by_impact(found, now_s), key=lambda each: (-each.finding.severity, not each.finding.is_primary)
    ):
        if each.finding.severity > Severity.INFO and each.finding.consequence_of is None:
            of_job.setdefault(each.target, each)
    return sorted(of_job.values(), key=lambda each: (-each.finding.severity, -(each.lost_gpu_hours or 0.0)))


def by_cause(wrong: Iterable[RankedFinding]) -> list[tuple[RankedFinding, ...]]:
    """Group findings by cause, the newest job first; groups are in the order of their first findings.

    A rule for any error covers many causes: its message, without the numbers in it, tells them apart.
    """
    groups: dict[tuple[str, str], list[RankedFinding]] = {}
    for each in wrong:
        finding = each.finding
        words = _NUMBER.sub("#", finding.summary) if finding.cause in _MANY_CAUSES else ""
        groups.setdefault((finding.rule, words), []).append(each)
    return [tuple(sorted(group, key=lambda each: -_ended_s(each))) for group in groups.values()]


def _ended_s(each: RankedFinding) -> float:
    return math.inf if each.ended_s is None else each.ended_s


def worst(found: Mapping[str, Iterable[RankedFinding]], now_s: float) -> RankedFinding | None:
    """The most severe cause (ties: most GPU-hours lost); info findings and consequences do not count."""
    causes = [
        each
        for each in by_impact(found, now_s)
        if each.finding.severity > Severity.INFO and each.finding.consequence_of is None
    ]
    return min(causes, key=lambda each: (-each.finding.severity, -(each.lost_gpu_hours or 0.0)), default=None)


# The cost of a finding is an upper bound, from this job alone: nobody can measure how the job would have run
# without it.

_HOUR_S = 3600.0


def has_gone_wrong(worst: Finding, state: str | None) -> bool:
    """True for a job with a critical finding, or in a bad final state. A job that runs or completed with only
    a warning has not gone wrong: it warned."""
    return worst.severity is Severity.CRITICAL or has_failed(state)


def lost_gpu_hours(finding: Finding, target: TargetSnapshot) -> float | None:
    """Upper bound of the GPU-hours lost; None if not known. For a job that broke off, the time since its last
    checkpoint; else the time since the finding began.

    A consequence costs nothing more than its cause, and an info finding costs nothing.
    """
    if finding.consequence_of is not None or finding.severity is Severity.INFO:
        return 0.0
    num_gpus = num_gpus_of(target)
    if num_gpus == 0:
        return 0.0
    end_s = target.now_s
    start_s = (
        _broke_off_since(target) if target.has_ended and target.state != "COMPLETED" else finding.since_s
    )
    if num_gpus is None or start_s is None or end_s is None:
        return None
    return num_gpus * max(0.0, end_s - start_s) / _HOUR_S


def num_gpus_of(target: TargetSnapshot) -> int | None:
    """GPUs that the job has or had."""
    if target.job is not None and target.job.num_gpus is not None:
        return target.job.num_gpus
    return target.run.num_gpus if target.run is not None else None


def _broke_off_since(target: TargetSnapshot) -> float | None:
    started_s = target.job.start_time_s if target.job is not None else None
    if started_s is None and target.run is not None:
        started_s = target.run.started_time_s
    saved = [checkpoint.time_s for checkpoint in target.checkpoints]
    return max([*([] if started_s is None else [started_s]), *saved], default=None)
