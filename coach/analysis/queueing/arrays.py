"""Fold a job array into one row, and unfold it again into one row per task.

squeue folds the tasks that still wait (`17_[3-8%2]`) and lists every other one by itself; a screen wants one
row for all of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from coach.model.slurm.cluster import Job, has_failed, is_final

_TASK = re.compile(r"^(?P<array>\d{1,15})_(?:(?P<task>\d{1,15})|\[(?P<tasks>[^\]]*)(?P<end>\]?))$")
_RANGE = re.compile(r"^(?P<first>\d{1,15})(?:-(?P<last>\d{1,15})(?::(?P<step>\d{1,15}))?)?$")
_JOB_ID = re.compile(r"\d+(?:_(?:\d+|\[[\d,:%-]+\]))?(?:\+\d+)?", re.ASCII)
_HET = re.compile(r"^(?P<job>\d{1,15})\+(?P<offset>\d{1,15})$")
_PART = re.compile(r"^\d+[_+]")
_MAX_TASKS = 100_000
_MAX_DIGITS = 15

_Whole = tuple[str | None, str, str]
"""Cluster, user, and number of an array or heterogeneous job."""


@dataclass(frozen=True, slots=True)
class FoldedJob:
    """One row: a single job, or all known rows of an array or of a heterogeneous job.

    `job` is the row to show. Its `job_id` is the folded one (`17_[0-2,3-8%2]`); its state is that of the
    liveliest part. If all have ended, it is the most frequent state other than COMPLETED.
    """

    job: Job
    parts: tuple[Job, ...]
    states: tuple[tuple[str, int], ...]
    """State → number of tasks, the most frequent first."""

    @property
    def is_folded(self) -> bool:
        return len(self.parts) > 1

    @property
    def num_tasks(self) -> int:
        return sum(count for _, count in self.states)

    @property
    def num_failed(self) -> int:
        """Tasks that ended badly, without cancelled ones."""
        return sum(count for state, count in self.states if has_failed(state))


@dataclass(frozen=True, slots=True)
class TaskIds:
    """The tasks of an array expression. `is_cut` is True if Slurm shortened the list: at `...`, or without
    its `]`, as it does unless SLURM_BITSTR_LEN is set. coach sets it; old recordings hold such lists."""

    array_id: str
    tasks: tuple[int, ...]
    limit: int | None
    is_cut: bool = False


_STATE_ORDER = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "PENDING")


def fold(jobs: Iterable[Job]) -> tuple[FoldedJob, ...]:
    """Combine the rows of each array or heterogeneous job, at the place of its first row. Clusters and users
    are kept apart."""
    return tuple(row if isinstance(row, FoldedJob) else _alone(row) for row in fold_rows(jobs))


def fold_rows(jobs: Iterable[Job]) -> list[Job | FoldedJob]:
    """Like `fold`, but a job without parts stays a plain `Job`: most of a long queue, at no cost.

    If all waiting tasks of an array are cancelled, Slurm lists them as one job with the bare number of the
    array: that row joins the other tasks.
    """
    jobs = list(jobs)
    wholes = _wholes(jobs)
    if not wholes:
        return [*jobs]
    rows: list[Job | list[Job]] = []
    groups: dict[_Whole, list[Job]] = {}
    numbers = {number for _, _, number in wholes}
    for job in jobs:
        if job.job_id.isdecimal() and job.job_id not in numbers:
            rows.append(job)
            continue
        key = _whole_of(job)
        if key not in wholes:
            rows.append(job)
            continue
        group = groups.get(key)
        if group is None:
            groups[key] = group = []
            rows.append(group)
        group.append(job)
    return [row if isinstance(row, Job) else _fold_group(row) for row in rows]


def is_job_id(text: str) -> bool:
    """True if the text has the form of a job id: 17, 17_3, 17_[2-9], 17_[0-8:2%1], 20+1."""
    return _JOB_ID.fullmatch(text) is not None


def is_part(job_id: str) -> bool:
    """True for one or more tasks of an array, and for a component of a heterogeneous job."""
    return not job_id.isdecimal() and _PART.match(job_id) is not None


def without_rests(jobs: Iterable[Job]) -> list[Job]:
    """The rows without those that stand for the cancelled rest of an array whose other tasks have rows."""
    jobs = list(jobs)
    wholes = _wholes(jobs)
    return [job for job in jobs if (job.cluster, job.user, job.job_id) not in wholes]


def _wholes(jobs: Iterable[Job]) -> set[_Whole]:
    """The arrays and heterogeneous jobs that have a part among the rows."""
    return {_whole_of(job) for job in jobs if is_part(job.job_id)}


def _whole_of(job: Job) -> _Whole:
    return job.cluster, job.user, group_id(job.job_id)


def unfold(folded: FoldedJob) -> tuple[Job, ...]:
    """The rows that were folded. Each waiting task gets its own row (`17_3`), in the order of task
    numbers."""
    rows: list[Job] = []
    for job in folded.parts:
        ids = parse_task_ids(job.job_id)
        if ids is None or ids.is_cut or len(ids.tasks) < 2:
            rows.append(job)
        else:
            rows += [replace(job, job_id=f"{ids.array_id}_{task}", raw_job_id=None) for task in ids.tasks]
    return tuple(sorted(rows, key=_part_order))


def each_task_once(rows: Iterable[Job]) -> tuple[Job, ...]:
    """The rows of one array or heterogeneous job, in the order of their numbers. A part that stands in
    several rows stays in the first one: a waiting task shares rows before it has a row of its own."""
    told: set[int] = set()
    kept: list[Job] = []
    for row in rows:
        ids = parse_task_ids(row.job_id)
        if ids is None or ids.is_cut:
            kept.append(row)
            continue
        new = [task for task in ids.tasks if task not in told]
        told.update(new)
        if len(new) == len(ids.tasks):
            kept.append(row)
        elif new:
            kept.append(replace(row, job_id=_id_of_tasks(ids.array_id, new, ids.limit)))
    return tuple(sorted(kept, key=_part_order))


def group_id(job_id: str) -> str:
    """`17` for `17_3`, `17_[4-9]` and `17+1`."""
    return job_id if job_id.isdecimal() else re.split(r"[_+]", job_id, maxsplit=1)[0]


def parse_task_ids(job_id: str) -> TaskIds | None:
    """The tasks of `17_3` or `17_[0-8:2,20%2]`; None if it is no array."""
    match = _TASK.match(job_id)
    if match is None:
        return None
    if match["task"] is not None:
        return TaskIds(match["array"], (int(match["task"]),), None)
    listed, percent, limit = match["tasks"].partition("%")
    is_cut = not match["end"]
    if is_cut:  # the last number may lack digits: `17_[3,5,20` of `17_[3,5,200-300]`
        listed, percent = listed.rpartition(",")[0], ""
    tasks: list[int] = []
    for part in listed.split(","):
        bounds = _RANGE.match(part)
        if bounds is None:
            is_cut = True  # `...`: Slurm prints only part of a long list
            continue
        first, last = int(bounds["first"]), int(bounds["last"] or bounds["first"])
        step = int(bounds["step"] or 1) or 1
        if (last - first) // step > _MAX_TASKS or len(tasks) > _MAX_TASKS:
            is_cut = True
            continue
        tasks += range(first, last + 1, step)
    has_limit = percent and limit.isdecimal() and len(limit) <= _MAX_DIGITS
    return TaskIds(match["array"], tuple(tasks), int(limit) if has_limit else None, is_cut)


def format_tasks(tasks: Iterable[int]) -> str:
    """(0, 1, 2, 7) as `0-2,7`."""
    parts: list[list[int]] = []
    for task in sorted(set(tasks)):
        if parts and task == parts[-1][1] + 1:
            parts[-1][1] = task
        else:
            parts.append([task, task])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _alone(job: Job) -> FoldedJob:
    return FoldedJob(job, (job,), ((job.state, num_tasks(job)),))


def _fold_group(group: list[Job]) -> FoldedJob:
    if len(group) == 1:
        return _alone(group[0])
    states: Counter[str] = Counter()
    for job in group:
        states[job.state] += num_tasks(job)
    bad = [state for state, _ in states.most_common() if state != "COMPLETED"]
    is_over = all(map(is_final, states))
    liveliest = min(group, key=lambda job: job.state != bad[0] if is_over and bad else _rank(job.state))
    # Resources in use now; for an array that only waits or has ended, the resources that its rows request.
    holding = [job for job in group if job.state != "PENDING" and not is_final(job.state)] or group
    shown = replace(
        liveliest,
        job_id=_folded_id(group),
        raw_job_id=None,
        num_nodes=_sum(job.num_nodes for job in holding),
        num_cpus=_sum(job.num_cpus for job in holding),
        num_gpus=_sum(job.num_gpus for job in holding),
        nodes=None,
        exit_code=None,
    )
    return FoldedJob(shown, tuple(group), tuple(states.most_common()))


def _folded_id(group: list[Job]) -> str:
    base = group_id(group[0].job_id)
    parts = [job for job in group if is_part(job.job_id)]
    known = [ids for job in parts if (ids := parse_task_ids(job.job_id)) is not None]
    if len(known) < len(parts):
        return _folded_components(base, group)
    limit = next((each.limit for each in known if each.limit is not None), None)
    tasks = [task for each in known for task in each.tasks]
    return _id_of_tasks(base, tasks, limit, is_cut=any(each.is_cut for each in known))


def _id_of_tasks(array_id: str, tasks: Iterable[int], limit: int | None, *, is_cut: bool = False) -> str:
    percent = "" if limit is None else f"%{limit}"
    return f"{array_id}_[{format_tasks(tasks)}{',…' if is_cut else ''}{percent}]"


def _folded_components(base: str, group: list[Job]) -> str:
    """`20+[0-1]` for a heterogeneous job; the bare number if some row is not a component."""
    offsets = [int(match["offset"]) for job in group if (match := _HET.match(job.job_id))]
    return f"{base}+[{format_tasks(offsets)}]" if len(offsets) == len(group) else base


def num_tasks(job: Job) -> int:
    """Number of tasks in a row; 1 if it is no array's."""
    ids = parse_task_ids(job.job_id)
    return 1 if ids is None else max(1, len(ids.tasks))


def _rank(state: str) -> int:
    return _STATE_ORDER.index(state) if state in _STATE_ORDER else len(_STATE_ORDER)


def _part_order(job: Job) -> tuple[int, int]:
    ids = parse_task_ids(job.job_id)
    het = _HET.match(job.job_id)
    if ids is not None and ids.tasks:
        return int(ids.array_id), ids.tasks[0]
    if het is not None:
        return int(het["job"]), int(het["offset"])
    return (int(job.job_id) if job.job_id.isdecimal() and len(job.job_id) <= _MAX_DIGITS else 0), 0


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
