"""The tasks of an array as one value: how many have ended, the best loss, the use of their devices, findings.

The runs of a sweep also count tasks that have left the queue. It uses only data of targets that are followed
anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coach.analysis.comparing.sweep_table import group_of
from coach.analysis.jobs.belonging import RowsByTask, is_job_of
from coach.lookback.glance import DeviceUse, together
from coach.model.judging.finding import Finding
from coach.model.slurm.cluster import Job, has_failed, is_final
from coach.model.training.run import Run
from coach.tui.training import Training

_NOT_BEGUN = (None, "PENDING", "CONFIGURING")


def sweep_of(rows: Iterable[Job], runs: Iterable[Run]) -> list[Run]:
    """The runs of the sweep to which these rows of one array belong, in the order of its values, with those
    of ended tasks; empty for another array."""
    by_task, known = RowsByTask({row.job_id: row for row in rows}), list(runs)
    for run in known:
        row = by_task.get(run.job_id or "") if run.sweep is not None else None
        if row is not None and run.sweep is not None and is_job_of(row, run):
            return group_of(run.sweep.group_id, known)
    return []


@dataclass(frozen=True, slots=True)
class Task:
    """One task as far as it is known."""

    name: str
    """Its place in the array, as in its job id: `_3`."""
    state: str | None
    value: str = ""
    """The values that a sweep gave it: `lr 0.3`."""
    training: Training | None = None
    finding: Finding | None = None
    is_healthy: bool = False


@dataclass(frozen=True, slots=True)
class Best:
    """The lowest newest loss of the tasks, and its task."""

    loss: float
    name: str
    value: str
    num_read: int | None = None
    """Number of tasks whose metrics were read; None if those are all that have begun. coach follows only some
    tasks of a large array, so another task may have a lower loss."""


@dataclass(frozen=True, slots=True)
class ArraySoFar:
    """All tasks of an array together."""

    num_tasks: int
    num_ended: int | None
    """None if the number is unknown: Slurm forgets ended tasks, and only the runs of coach remember them."""
    best: Best | None
    gpus: DeviceUse | None
    cpus: DeviceUse | None
    findings: tuple[Finding, ...]
    """The worst finding of each task that has one, the most severe first."""
    is_healthy: bool
    """True if every task that has begun is judged healthy."""


def array_so_far(tasks: Sequence[Task], num_tasks: int, *, are_all_known: bool) -> ArraySoFar:
    """The tasks together. `are_all_known`: `tasks` also has those that have left the queue."""
    running = [task.training for task in tasks if task.state == "RUNNING" and task.training]
    begun = [task.is_healthy for task in tasks if task.state not in _NOT_BEGUN]
    return ArraySoFar(
        num_tasks,
        sum(is_final(task.state) for task in tasks) if are_all_known else None,
        _best(tasks),
        together(filter(None, (training.gpus for training in running))),
        together(filter(None, (training.cpus for training in running))),
        _findings(tasks),
        bool(begun) and all(begun),
    )


def _findings(tasks: Iterable[Task]) -> tuple[Finding, ...]:
    found = [task.finding for task in tasks if task.finding is not None]
    return tuple(sorted(found, key=lambda finding: finding.severity, reverse=True))


def _best(tasks: Sequence[Task]) -> Best | None:
    """The best loss; a failed task counts only if no other task has a loss."""
    known = [(task, loss) for task in tasks if (loss := _newest_loss(task.training)) is not None]
    if not known:
        return None
    task, loss = min(known, key=lambda each: (has_failed(each[0].state or ""), each[1]))
    begun = [each.training is not None for each in tasks if each.state not in _NOT_BEGUN]
    return Best(loss, task.name, task.value, None if all(begun) else sum(begun))


def _newest_loss(training: Training | None) -> float | None:
    """None also for a loss that is not finite."""
    curve = training.glance.curve if training is not None else ()
    newest = next((point.loss for point in reversed(curve) if point.loss is not None), None)
    return newest if newest is not None and math.isfinite(newest) else None
