"""What a finding costs, in GPU-hours: by this findings are ranked, so that the advice that saves most is read first.

An upper bound, from what is known of the job alone: nobody measures what a job would have done otherwise.
"""

from __future__ import annotations

from coach.model.judging.finding import Finding, Severity
from coach.model.snapshot import TargetSnapshot

_HOUR_S = 3600.0


def lost_gpu_hours(finding: Finding, target: TargetSnapshot) -> float | None:
    """At most so much was lost, None where nobody knows. Of a job that broke off, all since its last checkpoint; else since it began to hold.

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
