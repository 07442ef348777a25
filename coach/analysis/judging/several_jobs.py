"""Judge several jobs together: sort own jobs by severity, and judge an array or a heterogeneous job as a
whole. Pure.

A thousand tasks of an array fail for few causes: each cause is reported once, with its tasks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coach.analysis.judging.no_finding import Look, look_of
from coach.analysis.judging.ranking import lost_gpu_hours
from coach.analysis.judging.waiting import is_never
from coach.analysis.queueing.arrays import fold
from coach.analysis.queueing.pending_reasons import PendingReason, explain_job
from coach.analysis.spelling.printable import cut
from coach.model.judging.finding import Diagnosis, Finding, Severity, Subject, Verdict
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot

_ERROR = re.compile(r"[A-Za-z_][\w.]*(?=: |$)")
"""The type of an exception at the beginning of a summary: `ValueError: no such class`."""
PRINTED_NOTHING = "printed nothing"
_MAX_NAMED = 120
"""Characters of the names of the tasks in a finding."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One job of several."""

    diagnosis: Diagnosis
    snapshot: TargetSnapshot

    @property
    def worst(self) -> Finding | None:
        """The root cause, if there is a finding above info."""
        return next((each for each in self.diagnosis.findings if each.severity > Severity.INFO), None)

    @property
    def lost_gpu_hours(self) -> float | None:
        return None if self.worst is None else lost_gpu_hours(self.worst, self.snapshot)

    @property
    def num_tasks(self) -> int:
        """Slurm gives one row to all tasks of an array that never started: `17_[2-9]` are eight."""
        job = self.snapshot.job
        return fold((job,))[0].num_tasks if job is not None else 1

    @property
    def is_waiting(self) -> bool:
        return self.snapshot.state in ("PENDING", "CONFIGURING")

    @property
    def why_never(self) -> PendingReason | None:
        """Why it cannot start with what it asks for; None if it can."""
        why = explain_job(self.snapshot.job) if self.snapshot.job is not None else None
        return why if why is not None and is_never(why) else None

    @property
    def is_unread(self) -> bool:
        """True if there was no data to judge it by."""
        snapshot = self.snapshot
        return not (snapshot.log_tails or snapshot.events or snapshot.run or self.printed_nothing)

    @property
    def printed_nothing(self) -> bool:
        """True if its logs could be read, and are empty."""
        files = self.snapshot.log_files
        return not self.snapshot.log_tails and any(file.is_found and not file.problem for file in files)

    @property
    def word(self) -> str:
        """The word for a job that was read, such as `healthy`."""
        look = look_of(self.diagnosis)
        return PRINTED_NOTHING if look is Look.UNKNOWN and self.printed_nothing else look.value

    @property
    def is_blind(self) -> bool:
        """True if nothing was found because nothing could be read."""
        return self.worst is None and not self.is_waiting and self.is_unread


def worst_first(judged: Sequence[Judged]) -> list[Judged]:
    """Sort by severity, then by GPU-hours lost, then unread jobs first, then the newest. A waiting job counts
    as neither bad nor unread."""

    def order(each: Judged) -> tuple[int, float, bool, float]:
        worst = each.worst
        job = each.snapshot.job
        started_s = (job.start_time_s if job is not None else None) or 0.0
        return (
            0 if worst is None else -worst.severity,
            -(each.lost_gpu_hours or 0.0),
            not each.is_blind,
            -started_s,
        )

    return sorted(judged, key=order)


def whole(name: str, parts: Sequence[Job], judged: Sequence[Judged], num_parts: int) -> Judged:
    """The diagnosis of all parts together. `parts` have a known state. `judged` has some or all of the parts,
    the worst first."""
    alike: dict[tuple[str, ...], list[tuple[Judged, Finding]]] = {}
    for each in judged:
        for finding in each.diagnosis.findings:
            if finding.consequence_of is None:
                alike.setdefault(_kind_of(finding), []).append((each, finding))
    groups = sorted(
        alike.values(),
        key=lambda group: (-max(f.severity for _, f in group), not group[0][1].is_primary, -len(group)),
    )
    findings = tuple(_of_all(group, num_parts, number == 0) for number, group in enumerate(groups))
    seen = [each for each in judged if not each.is_waiting]
    lacking = [{item.what for item in each.diagnosis.not_measured} for each in seen]
    unmeasured = set.intersection(*lacking) if lacking else set()
    blind = {item.what: item for each in reversed(seen) for item in each.diagnosis.not_measured}
    state = state_of(parts)
    thresholds = {name: value for each in judged for name, value in each.diagnosis.thresholds.items()}
    diagnosis = Diagnosis(
        name, state, findings, tuple(blind[what] for what in sorted(unmeasured)), thresholds, _health(seen)
    )
    return Judged(diagnosis, TargetSnapshot(name, None, job=fold(parts)[0].job if parts else None))


def _health(seen: Sequence[Judged]) -> Verdict:
    """The verdict on all parts that have started, if none has a finding."""
    verdicts = {each.diagnosis.verdict for each in seen} or {Verdict.TOO_EARLY}
    return next((each for each in (Verdict.UNKNOWN, Verdict.TOO_EARLY) if each in verdicts), Verdict.HEALTHY)


def state_of(parts: Sequence[Job]) -> str | None:
    """The state of the liveliest part; if all have ended, the most frequent state other than COMPLETED."""
    return fold(parts)[0].job.state if parts else None


def _kind_of(finding: Finding) -> tuple[str, ...]:
    """What findings of several parts have in common: the rule, the cause, and the type of an exception."""
    error = _ERROR.match(finding.summary)
    return finding.rule, finding.cause, error[0] if error is not None else ""


def _of_all(group: Sequence[tuple[Judged, Finding]], num_parts: int, is_primary: bool) -> Finding:
    """The worst finding of the group, worded for all its parts."""
    finding = max((finding for _, finding in group), key=lambda each: each.severity)
    if num_parts == 1:
        return replace(finding, is_primary=is_primary)
    hit = {each.diagnosis.target: each for each, _ in group}
    names = sorted(hit, key=lambda name: (len(name), name))
    listed = ", ".join(names)
    if len(listed) > _MAX_NAMED and len(names) > 2:
        listed = f"{names[0]}, {names[1]} … {names[-1]}"
    num_hit = sum(each.num_tasks for each in hit.values())
    return replace(
        finding,
        is_primary=is_primary,
        subject=finding.subject if len({each.subject for _, each in group}) == 1 else Subject(),
        summary=f"{num_hit} of {num_parts} ({cut(listed, _MAX_NAMED)}): {finding.summary}",
    )
