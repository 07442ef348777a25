"""The arrays in the queue of the first screen: all tasks of an array as one value. It uses only data of
targets that are followed anyway."""

from __future__ import annotations

from collections.abc import Mapping

from coach.analysis.judging.no_finding import Look, look_of
from coach.analysis.queueing.arrays import FoldedJob, group_id, is_part
from coach.launch.parameters import show
from coach.model.launching.launch import ARRAY_TASK
from coach.model.slurm.cluster import is_final
from coach.model.training.run import Run
from coach.tui.array_tasks import ArraySoFar, Task, array_so_far, sweep_of
from coach.tui.context import Context
from coach.tui.render.queue import is_own
from coach.tui.training import worst_of


class Arrays:
    """Looks up one array at a time, because a table makes only the rows in sight."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sweeps: tuple[object, Mapping[str, list[Run]]] = (None, {})
        """A cache: the runs, and by array id the runs of its sweep."""

    def of(self, folded: FoldedJob) -> ArraySoFar | None:
        """The tasks of the user's own array together; None for other people's, and if no task is known.

        The runs of a sweep also tell of tasks that have left the queue.
        """
        context = self._context
        if context.user is not None and not is_own(folded.job, context.user):
            return None
        runs = self._sweep_of(folded)
        if runs:
            tasks = [self._task_of_run(run) for run in runs]
            size = max(len(runs), *(run.sweep.size for run in runs if run.sweep is not None))
            return array_so_far(tasks, size, are_all_known=len(runs) == size)
        target_of = context.trainings.target_of
        tasks = [
            self._task(target_of(part, context.snapshot.runs), part.job_id, part.state)
            for part in folded.parts
        ]
        is_any_known = any(task.training is not None or task.finding is not None for task in tasks)
        return array_so_far(tasks, folded.num_tasks, are_all_known=False) if is_any_known else None

    def _sweep_of(self, folded: FoldedJob) -> list[Run]:
        """The runs of the sweep whose array this is, those of ended tasks too; empty for another array."""
        candidates = self._runs_by_array().get(group_id(folded.job.job_id))
        return sweep_of(folded.parts, candidates) if candidates is not None else []

    def _runs_by_array(self) -> Mapping[str, list[Run]]:
        known = self._context.snapshot.runs
        if self._sweeps[0] is not known:
            by_array: dict[str, list[Run]] = {}
            for run in known:
                if run.sweep is not None and run.job_id is not None and is_part(run.job_id):
                    by_array.setdefault(group_id(run.job_id), []).append(run)
            self._sweeps = (known, by_array)
        return self._sweeps[1]

    def _task_of_run(self, run: Run) -> Task:
        point = run.sweep
        is_swept = point is not None and point.parameter != ARRAY_TASK
        value = f"{point.parameter} {show(point.value)}" if point is not None and is_swept else ""
        return self._task(run.run_id, run.job_id or "", self._context.state_of(run), value)

    def _task(self, target: str, job_id: str, state: str | None, value: str = "") -> Task:
        """A task that has ended is not called healthy by a verdict from while it ran."""
        context = self._context
        diagnosis = context.diagnoses.get(target)
        is_of_before = diagnosis is not None and is_final(state) and not is_final(diagnosis.state)
        return Task(
            job_id[len(group_id(job_id)) :],
            state,
            value,
            context.trainings.of(target),
            worst_of(context.found.get(target, ())),
            look_of(diagnosis) is Look.HEALTHY and not is_of_before,
        )
