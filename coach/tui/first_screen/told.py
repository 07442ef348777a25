"""What the rows of the first screen tell of one's own trainings: from what is followed anyway, no question is
asked for it."""

from __future__ import annotations

from coach.analysis.judging.ranking import RankedFinding, by_cause, went_wrong
from coach.model.slurm.cluster import Job
from coach.tui.context import Context
from coach.tui.mode import Mode
from coach.tui.render.first_start import first_start_lines
from coach.tui.render.queue import EmptyBecause, empty_queue_note, is_own
from coach.tui.render.running import running_lines
from coach.tui.render.table import Cell
from coach.tui.render.text import Line
from coach.tui.render.training import finding_cell, look_cell
from coach.tui.training import Training, worst_of


class Told:
    """Looks up one job at a time: only rows in sight are made."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def target_of(self, job: Job) -> str:
        """The id of its run, else its number."""
        return self._context.trainings.target_of(job, self._context.snapshot.runs)

    def of(self, job: Job) -> tuple[Training | None, Cell | None]:
        """The training of an own job, and its verdict; of others nothing is known."""
        context = self._context
        if context.user is not None and not is_own(job, context.user):
            return None, None
        target = self.target_of(job)
        finding = worst_of(context.found.get(target, ()))
        if finding is not None:
            return context.trainings.of(target), finding_cell(finding)
        is_waiting = job.state == "PENDING"
        verdict = None if is_waiting else look_cell(context.diagnoses.get(target))
        return context.trainings.of(target), verdict

    def first_start_lines(self, width: int) -> list[Line]:
        """What is here, at the first start; empty at every other."""
        context = self._context
        if context.here is None:
            return []
        nodes, partitions = context.snapshot.nodes, context.snapshot.partitions
        return first_start_lines(context.here, context.place, nodes, partitions, context.label, width)

    def empty_queue_note(self, query: str, *, has_answer: bool, is_failed: bool) -> str:
        """What the queue says where it has no row."""
        context, mode = self._context, self._context.mode
        why = EmptyBecause(
            has_answer,
            context.are_all_shown,
            query,
            "jobs" in context.snapshot.hidden,
            can_launch=mode is Mode.LIVE,
            is_recorded=mode in (Mode.REPLAY, Mode.DEMO),
            has_queue=not context.place.startswith("local"),
            is_failed_today=is_failed,
        )
        return empty_queue_note(why, context.label)

    def causes(self) -> list[tuple[RankedFinding, ...]]:
        """What went wrong within a day: jobs with one cause together."""
        return by_cause(went_wrong(self._context.found, self._context.now_s))

    def running_lines(self, width: int, height: int) -> list[Line]:
        """The curves of those that run, as many as fit; none where there is no room."""
        return running_lines(self._running(), width, height)

    def _running(self) -> list[tuple[Job, Training]]:
        """One's own jobs that run, are followed and have told of themselves, the newest first."""
        found = []
        for name, target in self._context.snapshot.targets.items():
            training = self._context.trainings.of(name)
            if target.job is None or target.state != "RUNNING" or training is None:
                continue
            if is_own(target.job, self._context.user) and not training.glance.is_empty:
                found.append((target.job, training))
        return sorted(found, key=lambda each: -(each[0].submit_time_s or 0.0))
