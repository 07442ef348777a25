"""Why a job waits: in a few words beside its row, and in full on its screen. A sign shows the kind of reason,
not colour alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from coach.analysis.judging.waiting import behind_stuck, explain_waiting, is_never
from coach.analysis.queueing.arrays import FoldedJob, group_id, parse_task_ids
from coach.analysis.queueing.pending_reasons import PendingClass, PendingReason, explain_job, parse_dependency
from coach.model.judging.finding import Finding
from coach.model.slurm.accounting import FairShare, Limits, Part, PriorityFactors
from coach.model.slurm.cluster import Job, Partition, Reservation, has_failed, is_final
from coach.model.training.other_machine import rough_age
from coach.node.brake import CAUSE, kind_of_cause
from coach.render.severity import severity_tone
from coach.render.text import (
    BLANK,
    UNKNOWN,
    KeyLabel,
    Line,
    Span,
    Tone,
    clip,
    clock,
    line,
    muted,
    number,
    plural,
    printable,
    strong,
    whole,
    wrap,
)

if TYPE_CHECKING:
    from coach.workflows.jobs.place_in_queue import PlaceInQueue

T = TypeVar("T")
_MIN_ALIKE = 2
"""From this number on, tasks with the same failure and no success are reported as a common cause."""

KINDS: dict[PendingClass, tuple[str, Tone, str]] = {
    PendingClass.WAIT: ("·", "muted", "waits its turn"),
    PendingClass.LIMIT: ("▲", "warning", "a limit"),
    PendingClass.NEVER: ("✖", "critical", "will never start as it is"),
    PendingClass.HELD: ("■", "warning", "held"),
    PendingClass.ENDED: ("•", "info", "how an earlier attempt ended"),
    PendingClass.UNKNOWN: ("?", "warning", "not known to coach"),
}

_SHORT = {
    "None": "just queued",
    "Resources": "next in line",
    "Priority": "in line",
    "Reservation": "reservation",
    "BeginTime": "begins later",
    "JobArrayTaskLimit": "array limit",
    "Licenses": "no license",
    "Cleaning": "cleaning up",
    "NodeDown": "node down",
    "ReqNodeNotAvail": "node blocked",
    "PartitionDown": "partition down",
    "PartitionInactive": "partition off",
    "QOSUsageThreshold": "share used",
    "QOSJobLimit": "limit: jobs",
    "QOSResourceLimit": "limit of QOS",
    "QOSTimeLimit": "limit: time",
    "AssociationJobLimit": "limit: jobs",
    "AssociationResourceLimit": "your limit",
    "AssociationTimeLimit": "limit: time",
    "PartitionNodeLimit": "node count",
    "PartitionTimeLimit": "too long",
    "PartitionConfig": "not offered",
    "BadConstraints": "no such node",
    "DependencyNeverSatisfied": "after fail",
    "InvalidAccount": "bad account",
    "InvalidQOS": "bad QOS",
    "AccountNotAllowed": "bad account",
    "QOSNotAllowed": "bad QOS",
    "ReservationDeleted": "reservation gone",
    "ReservationInvalid": "bad reservation",
    "DeadLine": "too late",
    "MaxMemPerLimit": "too much mem",
    "JobHeldUser": "held: user",
    "JobHeldAdmin": "held: admin",
    "JobHoldMaxRequeue": "held: failed",
}
_DEPENDENCY_WORDS = {
    "after": "to start",
    "afterany": "to end",
    "afterok": "to end well",
    "afternotok": "to fail",
    "aftercorr": "to end well, task by task",
    "afterburstbuffer": "to end, and to have its data staged out",
    "singleton": "every other job of this name and user to end",
}
_LABEL = 14


def short_reason(job: Job) -> tuple[str, Tone]:
    """For example `· in line`, `▲ limit: CPUs`, `✖ too long`; empty for a job that does not wait."""
    why = explain_job(job)
    if why is None:
        return "", ""
    sign, tone, _ = KINDS[why.kind]
    return f"{sign} {printable(_few_words(why, job))}", tone


def _few_words(why: PendingReason, job: Job) -> str:
    code = why.reason.partition(",")[0].partition(" ")[0]
    if code == "Dependency":
        others = [job_ids for _, job_ids, _ in parse_dependency(job.dependency or "") if job_ids]
        return f"after {', '.join(others)}" if others else "other jobs"
    if why.limit_on is not None:
        return f"limit: {why.limit_on}"
    if code not in _SHORT and " " in why.reason:  # the site gave a sentence in place of a code
        return "held" if why.kind is PendingClass.HELD else "node blocked"
    return _SHORT.get(code, why.reason)


def start_words(job: Job, now_s: float) -> str:
    """The start that Slurm expects, marked as an estimate: `~in 3 h`; empty if there is none."""
    start_s = job.estimated_start_s
    if start_s is None:
        return ""
    return f"~in {rough_age(start_s - now_s)}" if start_s > now_s else "~now"


def why_lines(
    job: Job,
    now_s: float,
    width: int,
    partitions: Sequence[Partition] = (),
    jobs: Mapping[str, Job] = MappingProxyType({}),
) -> list[Line]:
    """Why the job waits, what the user can do, and the start that Slurm expects; empty if it does not
    wait. A time limit that one of `partitions` does not allow is named with the partition's. `jobs`: the
    queue by job id, to find a job before it that never starts."""
    why = explain_waiting(job, partitions)
    if why is None:
        return []
    why = behind_stuck(job, why, jobs.get)
    sign, tone, kind = KINDS[why.kind]
    rows = [
        line(Span(f" {sign} {kind}", tone), muted(f"   Slurm says: {printable(why.reason)}")),
        *labelled("why", why.meaning, width, is_strong=True),
        *labelled("what to do", why.advice, width),
    ]
    if not why.starts_by_itself:
        rows += labelled("", "it does not start by itself", width)
    if why.nodes is not None:
        rows += labelled("waits for", why.nodes, width)
    for kind_of, job_ids, state in parse_dependency(job.dependency or ""):
        words = _DEPENDENCY_WORDS.get(kind_of, kind_of)
        said = f"for {f'job {job_ids} ' if job_ids else ''}{words}{f' ({state})' if state else ''}"
        rows += labelled("waits", said, width)
    if job.reservation:
        rows += labelled("reservation", job.reservation, width)
    start = start_words(job, now_s) or f"{UNKNOWN}  Slurm has not estimated it"
    where = f" on {job.scheduled_nodes}" if job.scheduled_nodes else ""
    is_known = job.estimated_start_s is not None
    note = ": an estimate, renewed whenever the queue changes" if is_known else ""
    return [*rows, *labelled("starts", f"{start}{where}{note}", width)]


def never_lines(job: Job, width: int, partitions: Sequence[Partition]) -> list[Line]:
    """Why the job will never start as it is; empty if it may start."""
    why = explain_waiting(job, partitions)
    if why is None or not is_never(why):
        return []
    sign, tone, kind = KINDS[why.kind]
    return [line(Span(f" {sign} {kind}", tone)), *labelled("why", why.meaning, width, is_strong=True)]


def labelled(label: str, text: str, width: int, *, is_strong: bool = False) -> list[Line]:
    """A label, and its text wrapped beside it without control characters."""
    make = strong if is_strong else Span
    parts = wrap(printable(text), max(20, width - _LABEL - 2)) or [UNKNOWN]
    return [
        line(muted(f" {printable(label) if not index else '':<{_LABEL}}"), make(part))
        for index, part in enumerate(parts)
    ]


def place_lines(place: PlaceInQueue, job: Job, now_s: float, width: int) -> list[Line]:
    """The parts of a job's place in the queue. For parts that the site does not report, its own message is
    shown."""
    rows: list[Line] = []
    found = [each for each in _told(place.priorities) if group_id(each.job_id) == group_id(job.job_id)]
    for factors in found[:1]:
        rows += labelled("priority", _priority(factors), width, is_strong=True)
    for share in _told(place.fair_share):
        if job.account in (None, share.account):
            rows += labelled("fair share", _fair_share(share), width)
    for limit in (*_told(place.associations), *_told(place.qos)):
        if limit.values and _is_limit_of(job, limit):
            rows += labelled("limits", _limit(limit), width)
    for reservation in _told(place.reservations):
        rows += labelled("reserved", _reservation(reservation, now_s), width)
    for what, because in place.missing():
        rows += labelled("not told", f"{what}: {because}", width)
    return rows or [line(muted(" nothing affects it: no priorities, shares, limits or reservations"))]


def _told(part: Part[tuple[T, ...]]) -> tuple[T, ...]:
    """The values of a part; empty if the site does not report it."""
    return part.value or ()


def _priority(factors: PriorityFactors) -> str:
    parts = (
        ("age", factors.age),
        ("fair share", factors.fair_share),
        ("size", factors.job_size),
        ("partition", factors.partition_factor),
        ("QOS", factors.qos),
        ("account", factors.association),
    )
    known = " + ".join(f"{name} {value}" for name, value in parts if value is not None)
    nice = f", nice {factors.nice}" if factors.nice else ""
    return f"{whole(factors.priority)}{f' = {known}' if known else ''}{nice}"


def _fair_share(share: FairShare) -> str:
    factor = f"{number(share.factor)} (1 is first in line, 0 last)"
    used = f"used {number(share.effective_usage)} of all, shares {share.raw_shares or UNKNOWN}"
    return f"{share.account}: {factor}; {used}"


def _is_limit_of(job: Job, limit: Limits) -> bool:
    """True if the limit applies to the job. An unknown account or QOS counts as a match, because squeue may
    not report it."""
    return (job.account if limit.kind == "association" else job.qos) in (None, limit.name)


def _limit(limit: Limits) -> str:
    what = "account" if limit.kind == "association" else "QOS"
    said = "  ".join(f"{name}={value}" for name, value in limit.values.items())
    return f"{what} {limit.name}: {said}"


def _reservation(reservation: Reservation, now_s: float) -> str:
    kind = " for maintenance" if reservation.is_maintenance else ""
    starts_s = reservation.start_time_s
    if starts_s is None:
        when = reservation.state
    else:
        when = f"begins in {rough_age(starts_s - now_s)}" if starts_s > now_s else "goes on"
        if reservation.end_time_s is not None and reservation.end_time_s > now_s:
            when += f", ends in {rough_age(reservation.end_time_s - now_s)}"
    return f"{reservation.name}{kind}: {when}; nodes {reservation.nodes or UNKNOWN}"


def _braked_line(braked: Sequence[Finding]) -> Line:
    return line(Span(f" ■ {plural(len(braked), 'task')} {printable(braked[0].summary)}", "warning"))


def failed_alike_lines(
    folded: FoldedJob, found: Mapping[str, Finding], width: int, label: KeyLabel
) -> list[Line]:
    """The note that the first tasks of an array failed with one cause, and how to cancel the rest.

    Empty if a task has completed or may have, if no task is left, or if the causes differ. `found` has the
    finding of each task that was judged. A sweep with a brake cancels its own rest: then the note gives the
    number of tasks that did not start, and why.
    """
    states = dict(folded.states)
    num_left = sum(count for state, count in folded.states if not is_final(state))
    failed = [found[part.job_id] for part in folded.parts if has_failed(part.state) and part.job_id in found]
    if braked := [finding for finding in failed if finding.cause == CAUSE]:
        return [clip(_braked_line(braked), width), BLANK]
    if not num_left or states.get("COMPLETED") or not _are_alike(failed) or not _are_all_listed(folded):
        return []
    which = f"all {len(failed)} tasks that ended"
    if len(failed) < folded.num_failed:
        which = f"{len(failed)} of {folded.num_failed} failed tasks were judged, and"
    text = f" ✖ {which} failed alike ({failed[0].rule}): "
    left = f"the {num_left} that are left" if num_left > 1 else "the one that is left"
    return [
        clip(line(Span(text, "critical"), Span(label("cancel"), "key"), f" cancels {left}"), width),
        BLANK,
    ]


def _are_all_listed(folded: FoldedJob) -> bool:
    """False if the numbers of the tasks do not begin at 0 or 1, or have a gap: Slurm forgets a task minutes
    after its end, and nobody knows how those ended."""
    ids = (parse_task_ids(part.job_id) for part in folded.parts)
    tasks = sorted(task for each in ids if each is not None for task in each.tasks)
    steps = {later - earlier for earlier, later in pairwise(tasks)}
    return not tasks or (tasks[0] <= 1 and len(steps) <= 1)


def _are_alike(failed: Sequence[Finding]) -> bool:
    """True if there are enough findings, and all have one cause."""
    causes = {(finding.rule, kind_of_cause(finding.rule, finding.summary)) for finding in failed}
    return len(failed) >= _MIN_ALIKE and len(causes) == 1


def task_lines(
    folded: FoldedJob,
    rows: Sequence[Job],
    now_s: float,
    width: int,
    found: Mapping[str, Finding] = MappingProxyType({}),
    limit: int = 200,
) -> list[Line]:
    """One line for each task of an array, or each part of a heterogeneous job. Failed ones come first, with
    their cause."""
    counts = ", ".join(f"{count} {printable(state)}" for state, count in folded.states)
    what = "part" if "+" in folded.job.job_id else "task"
    lines = [line(strong(f" {plural(folded.num_tasks, what)}"), f"  {counts}")]
    for job in sorted(rows, key=lambda each: not has_failed(each.state))[:limit]:
        reason, tone = short_reason(job)
        spent = clock(job.time_used_s) if job.state != "PENDING" else start_words(job, now_s)
        lines.append(
            line(
                f"   {printable(job.job_id):<15} ",
                f"{printable(job.state):<11} ",
                Span(f"{reason or printable(job.nodes or UNKNOWN):<20}", tone),
                f" {spent}",
            )
        )
        finding = found.get(job.job_id)
        if finding is not None:
            text = f"     {finding.rule} {printable(finding.summary)}"
            lines.append(clip(line(Span(text, severity_tone(finding.severity))), width))
    if len(rows) > limit:
        lines.append(line(muted(f"   …and {len(rows) - limit} more")))
    return [*lines, BLANK]
