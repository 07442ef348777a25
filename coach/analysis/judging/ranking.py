"""The findings of many jobs in one order: what costs most GPU-hours first. Screens and commands rank by the
same measure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from coach.model.judging.finding import Diagnosis, Finding, Severity
from coach.model.slurm.cluster import Job
from coach.model.snapshot import Snapshot, TargetSnapshot

RECENT_S = 86400.0
"""Jobs that ended longer ago are history."""
_MANY_CAUSES = frozenset({"code_error", "unknown_failure"})
_NUMBER = re.compile(r"\d[\d.,:]*")


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
    """Those of each target that is followed and was judged. `ended` are jobs that the queue may have
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
    """Those of jobs that run or ended within a day: causes before what follows from them, then by cost, then
    by severity, then what runs or ended last."""
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
    """Of each job that went wrong its worst cause, in the order of `coach check`: by severity, then by cost.
    A remark is nothing wrong."""
    of_job: dict[str, RankedFinding] = {}
    for each in sorted(
        by_impact(found, now_s), key=lambda each: (-each.finding.severity, not each.finding.is_primary)
    ):
        if each.finding.severity > Severity.INFO and each.finding.consequence_of is None:
            of_job.setdefault(each.target, each)
    return sorted(of_job.values(), key=lambda each: (-each.finding.severity, -(each.lost_gpu_hours or 0.0)))


def by_cause(wrong: Iterable[RankedFinding]) -> list[tuple[RankedFinding, ...]]:
    """Findings of one cause together, the newest job first; the groups in the order of their first ones.

    A rule for any error has many causes: its words tell them apart, without their numbers.
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
    """The gravest of all, of those the most costly; a remark is none."""
    causes = [each for each in by_impact(found, now_s) if each.finding.severity > Severity.INFO]
    return min(causes, key=lambda each: (-each.finding.severity, -(each.lost_gpu_hours or 0.0)), default=None)


# The cost of a finding is an upper bound, from what is known of the job alone: nobody measures what a job
# would have done otherwise.

_HOUR_S = 3600.0


def lost_gpu_hours(finding: Finding, target: TargetSnapshot) -> float | None:
    """At most so much was lost, None where nobody knows. Of a job that broke off, all since its last
    checkpoint; else since it began to hold.

    A consequence costs nothing beyond what its cause does, and a remark nothing at all.
    """
    if finding.consequence_of is not None or finding.severity is Severity.INFO:
        return 0.0
    num_gpus = num_gpus_of(target)
    if num_gpus == 0:
        return 0.0
    end_s = target.now_s
    start_s = _broke_off_since(target) if _broke_off(target) else finding.since_s
    if num_gpus is None or start_s is None or end_s is None:
        return None
    return num_gpus * max(0.0, end_s - start_s) / _HOUR_S


def num_gpus_of(target: TargetSnapshot) -> int | None:
    """GPUs that the job has, or had."""
    if target.job is not None and target.job.num_gpus is not None:
        return target.job.num_gpus
    return target.run.num_gpus if target.run is not None else None


def _broke_off(target: TargetSnapshot) -> bool:
    return target.has_ended and target.state != "COMPLETED"


def _broke_off_since(target: TargetSnapshot) -> float | None:
    started_s = target.job.start_time_s if target.job is not None else None
    if started_s is None and target.run is not None:
        started_s = target.run.started_time_s
    saved = [checkpoint.time_s for checkpoint in target.checkpoints]
    return max([*([] if started_s is None else [started_s]), *saved], default=None)
