"""Decide which jobs an action applies to, why not to the others, and how to name the chosen ones to Slurm and
to the user. Pure.

Slurm's clients accept different job names: all refuse the `%2` of an array's limit, a hold of a whole array
also marks its running tasks, and a change of one waiting task's time limit is ignored without an error. This
module uses only the forms that were seen to work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from coach.analysis.queueing.arrays import format_tasks
from coach.analysis.queueing.arrays import group_id as group_id
from coach.analysis.queueing.arrays import parse_task_ids as parse_task_ids
from coach.analysis.spelling.printable import cut, display_width, printable
from coach.analysis.spelling.slurm import format_time
from coach.model.slurm.cluster import is_final
from coach.model.slurm.job_action import LeftOut, QueuedJob, Verb

MAX_PER_COMMAND = 100
"""Jobs named in one command at most: each is a separate request to the controller, and the client waits for
all of them."""

MAX_LISTED = 10
"""Jobs that a question lists at most: it must fit a terminal of 24 lines."""
_LIST_WIDTHS = (28, 22, 13)
"""The widest job id, name and state in the list, in cells."""

_HELD = frozenset({"JobHeldUser", "JobHeldAdmin"})
_HELD_STATES = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})


def why_not(verb: Verb, state: str, reason: str | None = None, can_requeue: bool | None = None) -> str | None:
    """Why an action has no effect on a job in this state; None if it is possible, as far as is known."""
    if verb is Verb.RESUBMIT:
        return None
    if verb is Verb.REQUEUE:
        return _why_no_requeue(state, can_requeue)
    if verb is Verb.RESUME:
        return _why_no_resume(state)
    if is_final(state):
        return f"it has ended already ({state})"
    # Tasks that wait for different reasons share a row: `JobHeldUser,JobArrayTaskLimit`.
    reasons = frozenset((reason or "").split(","))
    if verb is Verb.HOLD:
        return _why_no_hold(state, reasons)
    if verb is Verb.RELEASE:
        return _why_no_release(state, reasons)
    if verb in (Verb.SHELL, Verb.ATTACH) and state != "RUNNING":
        what = "open a shell in" if verb is Verb.SHELL else "look into"
        return f"it is {state}: only a running job has an allocation to {what}"
    return None


_NO_REQUEUE = (
    "Slurm may not requeue it (Requeue=0): it was submitted with --no-requeue, or the site's default is "
    "JobRequeue=0; sbatch --requeue allows it at the next submission"
)


def _why_no_requeue(state: str, can_requeue: bool | None) -> str | None:
    if state == "PENDING":
        return "it waits already"
    return _NO_REQUEUE if can_requeue is False else None


def _why_no_resume(state: str) -> str | None:
    if state == "COMPLETED":
        return "it has completed: nothing is left to do"
    return None if is_final(state) else f"it is {state}: only a run that has ended can be resumed"


def _why_no_hold(state: str, reasons: frozenset[str]) -> str | None:
    if _is_held(state, reasons) and reasons <= _HELD | {""}:
        return "it is held already"
    return None if state == "PENDING" else f"it is {state}: only a waiting job can be held"


def _why_no_release(state: str, reasons: frozenset[str]) -> str | None:
    if reasons == {"JobHeldAdmin"}:
        return "an administrator holds it: only an administrator can release it"
    return None if _is_held(state, reasons) else f"it is not held ({state})"


def _is_held(state: str, reasons: frozenset[str]) -> bool:
    return bool(reasons & _HELD) or state in _HELD_STATES


def why_not_limit(job: QueuedJob, time_limit_s: int) -> str | None:
    """Why a job cannot get this time limit; None if it can. Slurm lets users lower a limit, and only
    administrators raise one."""
    if job.time_limit_s is not None and time_limit_s > job.time_limit_s:
        return (
            f"its limit is {format_time(job.time_limit_s)}: users may only lower a limit, an administrator "
            "raises it"
        )
    if time_limit_s == job.time_limit_s:
        return "that is its limit already"
    if job.state != "PENDING" and job.time_used_s is not None and time_limit_s <= job.time_used_s:
        return f"it has run {format_time(job.time_used_s)} already and would end at once: cancel it instead"
    return None


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a row that a target names: all of it, or some of its waiting tasks."""

    row: QueuedJob
    tasks: tuple[int, ...] | None
    """None if the row is no part of an array, or if Slurm did not print all of its tasks."""

    @property
    def name(self) -> str:
        ids = parse_task_ids(self.row.job_id)
        if ids is None or self.tasks is None or self.tasks == ids.tasks:
            return self.row.job_id
        return _tasks_of(ids.array_id, self.tasks)


def parts_of(target: str, rows: Iterable[QueuedJob]) -> tuple[Part, ...]:
    """The rows, or parts of them, that `17`, `17_3`, `17_[3-8%2]`, `20+1` or `20+[0-1]` names. `rows` are all
    of its job or array."""
    named = _named_tasks(target)
    tasks = None if named is None else frozenset(named)
    found = []
    for row in rows:
        ids = parse_task_ids(row.job_id)
        if ids is None or ids.is_cut:
            if (not _is_component(target) or row.job_id == target) and (tasks is None or ids is not None):
                found.append(Part(row, None))
            continue
        chosen = tuple(task for task in ids.tasks if tasks is None or task in tasks)
        if chosen:
            found.append(Part(row, chosen))
    return tuple(found)


def rows_by_id(target: str, rows: Iterable[QueuedJob]) -> dict[str, list[QueuedJob]]:
    """Job id → its rows, for each array task that the target names; the target's own id if it is no array."""
    found: dict[str, list[QueuedJob]] = {}
    for part in parts_of(target, rows):
        for job_id in [f"{group_id(target)}_{task}" for task in part.tasks or ()] or [target]:
            found.setdefault(job_id, []).append(part.row)
    return found


def names_for(
    verb: Verb, target: str, accepted: Sequence[Part], rows: Sequence[QueuedJob]
) -> tuple[tuple[str, ...], tuple[LeftOut, ...]]:
    """The names for these parts of one job in a command, and the parts that cannot be named. `rows` are all
    rows of the job."""
    base = group_id(target)
    if all(parse_task_ids(part.row.job_id) is None for part in accepted):
        return (target if _is_component(target) else base,), ()
    is_cut = any(part.tasks is None for part in accepted)
    # A list without all of its tasks holds more than the tasks that the target names: only they are meant.
    named = _named_tasks(target) if is_cut else None
    if named is None and verb in (Verb.CANCEL, Verb.TIMELIMIT) and _is_all_that_lives(accepted, base, rows):
        return (base,), ()
    if is_cut and named is None:
        return (), (
            LeftOut(target, f"Slurm does not print all of its tasks: name some, or the whole array {base}"),
        )
    if verb is Verb.TIMELIMIT:
        return _single_tasks(accepted, base)
    return (_tasks_of(base, named or _listed_tasks(accepted)),), ()


def _listed_tasks(parts: Iterable[Part]) -> list[int]:
    return [task for part in parts for task in part.tasks or ()]


def _named_tasks(target: str) -> tuple[int, ...] | None:
    """The tasks that a target names; None if it names no single tasks, or not all of them."""
    ids = parse_task_ids(target)
    return None if ids is None or ids.is_cut else ids.tasks


def _is_component(target: str) -> bool:
    """True for `20+1`, one component of a heterogeneous job."""
    return "+" in target and "[" not in target


def _is_all_that_lives(accepted: Iterable[Part], base: str, rows: Iterable[QueuedJob]) -> bool:
    alive = {part for row in rows if not is_final(row.state) for part in parts_of(base, [row])}
    return alive <= set(accepted)


def _single_tasks(accepted: Sequence[Part], base: str) -> tuple[tuple[str, ...], tuple[LeftOut, ...]]:
    """Names for rows of one task each. Other rows are left out."""
    single = [part for part in accepted if _has_one_task(part.row)]
    others = [part for part in accepted if part not in single]
    reason = f"Slurm changes the limit of tasks that wait only for the whole array {base}"
    return tuple(part.row.job_id for part in single), tuple(LeftOut(part.name, reason) for part in others)


def _has_one_task(row: QueuedJob) -> bool:
    ids = parse_task_ids(row.job_id)
    return ids is not None and len(ids.tasks) == 1 and not ids.is_cut


def list_jobs(jobs: Iterable[QueuedJob], progress: Mapping[str, str]) -> list[str]:
    """A harmless line for each of several jobs: id, name, state, and its `progress` or its time; the running
    ones first. One job needs no list: its action names it."""
    ordered = sorted(jobs, key=lambda job: job.state == "PENDING")
    if len(ordered) < 2:
        return []
    cells = [
        [cut(printable(text), width) for text, width in zip(texts, _LIST_WIDTHS, strict=True)]
        for texts in ((job.job_id, job.name, job.state) for job in ordered[:MAX_LISTED])
    ]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    lines = [
        "".join(
            f"{text}{' ' * (width - display_width(text))}  "
            for text, width in zip(texts, widths, strict=True)
        )
        + (progress.get(job.job_id) or (format_time(job.time_used_s) if job.time_used_s else "–"))
        for texts, job in zip(cells, ordered, strict=False)
    ]
    num_more = len(ordered) - MAX_LISTED
    return [*lines, f"and {num_more} more: the command names them all"] if num_more > 0 else lines


def tasks_together(job_ids: Iterable[str]) -> str | None:
    """`17_[2,5]` for 17_2 and 17_5; None for jobs that are not tasks of one array."""
    ids = [parse_task_ids(job_id) for job_id in job_ids]
    known = [each for each in ids if each is not None and not each.is_cut]
    if len(known) < len(ids) or len({each.array_id for each in known}) != 1:
        return None
    return _tasks_of(known[0].array_id, [task for each in known for task in each.tasks])


def in_batches(names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple(names[first : first + MAX_PER_COMMAND]) for first in range(0, len(names), MAX_PER_COMMAND)
    )


def _tasks_of(array_id: str, tasks: Sequence[int]) -> str:
    return f"{array_id}_{tasks[0]}" if len(tasks) == 1 else f"{array_id}_[{format_tasks(tasks)}]"
