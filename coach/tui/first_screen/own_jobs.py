"""The user's trainings in the rows of the first screen. It uses only data of targets that are followed
anyway, and asks Slurm nothing."""

from __future__ import annotations

from coach.analysis.judging.ranking import RankedFinding, by_cause, went_wrong
from coach.model.slurm.cluster import Job, is_final
from coach.render.text import Line
from coach.tui.context import Context
from coach.tui.first_screen.arrays import Arrays
from coach.tui.render.queue import EmptyBecause, empty_queue_note, is_own
from coach.tui.render.running import curve_blocks, first_start_lines, heading, launch_lines, run_lines
from coach.tui.render.table import Cell
from coach.tui.render.training import finding_cell, look_cell
from coach.tui.training import Training, worst_of

_LEAST_FILLING = 4
_MAX_ENDED = 50
_GOES_ON = frozenset({"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING"})


class OwnJobs:
    """Looks up one job at a time, because a table makes only the rows in sight."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.array_of = Arrays(context).of

    def target_of(self, job: Job) -> str:
        """The followed target of a job: the id of its run, else its job id."""
        return self._context.trainings.target_of(job, self._context.snapshot.runs)

    def of(self, job: Job) -> tuple[Training | None, Cell | None]:
        """The training and the verdict of the user's own job; (None, None) for other people's jobs.

        A job that has ended is not called healthy by a verdict from while it ran.
        """
        context = self._context
        if context.user is not None and not is_own(job, context.user):
            return None, None
        target = self.target_of(job)
        finding = worst_of(context.found.get(target, ()))
        if finding is not None:
            return context.trainings.of(target), finding_cell(finding)
        diagnosis = context.diagnoses.get(target)
        is_of_before = is_final(job.state) and diagnosis is not None and diagnosis.state in _GOES_ON
        verdict = None if job.state == "PENDING" or is_of_before else look_cell(diagnosis)
        return context.trainings.of(target), verdict

    def first_start_lines(self, width: int) -> list[Line]:
        """The text of the first start; empty at later starts."""
        context = self._context
        if context.here is None:
            return []
        nodes, partitions = context.snapshot.nodes, context.snapshot.partitions
        return first_start_lines(
            context.here,
            context.place,
            nodes,
            partitions,
            context.label,
            width,
            can_launch=context.can_launch,
        )

    def empty_queue_note(self, query: str, *, has_answer: bool, is_failed: bool) -> str:
        """The text of an empty queue."""
        context, mode = self._context, self._context.mode
        why = EmptyBecause(
            has_answer,
            context.are_all_shown,
            query,
            "jobs" in context.snapshot.hidden,
            can_launch=context.can_launch,
            is_recorded=mode.is_recorded,
            has_queue=not context.place.startswith("local"),
            is_failed_today=is_failed,
        )
        return empty_queue_note(why, context.label)

    def causes(self) -> list[tuple[RankedFinding, ...]]:
        """The causes of failures within a day; jobs with the same cause are in one group."""
        return by_cause(went_wrong(self._context.found, self._context.now_s))

    def filling(self, width: int, height: int) -> tuple[str, list[Line]]:
        """The title and the lines below a short queue: curves of running trainings, else of ended ones, else
        the newest runs, else the recipes that the digits launch. Empty if there is no room."""
        context = self._context
        if height < _LEAST_FILLING:
            return "", []
        if rows := curve_blocks(self._running(), width, height):
            return "your trainings that run", rows
        if rows := curve_blocks(self._ended(), width, height):
            return "your last trainings", rows
        runs = sorted(context.snapshot.runs, key=lambda run: run.run_id, reverse=True)[:height]
        if listed := [(run, context.state_of(run), self._verdict(run.run_id)) for run in runs]:
            return "your newest runs", run_lines(listed, context.now_s, width, height)
        if not context.can_launch:
            return "", []
        keys = [(key.label, key.word, key.tooltip.partition(". ")[0]) for key in context.launch_keys]
        return "trainings to begin with", launch_lines(keys, width)[:height]

    def newest_run(self) -> str | None:
        """The id of the newest run; None if there is no run."""
        return max((run.run_id for run in self._context.snapshot.runs), default=None)

    def _verdict(self, target: str) -> Cell | None:
        finding = worst_of(self._context.found.get(target, ()))
        return finding_cell(finding) if finding is not None else None

    def _running(self) -> list[tuple[Line, Training]]:
        """The user's running jobs that are followed and have measured numbers, newest first."""
        found = []
        for name, target in self._context.snapshot.targets.items():
            training, job = self._context.trainings.of(name), target.job
            if job is None or target.state != "RUNNING" or training is None:
                continue
            if is_own(job, self._context.user) and not training.glance.is_empty:
                head = heading(job.job_id, job.name, None, self._verdict(name))
                found.append((-(job.submit_time_s or 0.0), name, head, training))
        return [(head, training) for _, _, head, training in sorted(found, key=lambda each: each[:2])]

    def _ended(self) -> list[tuple[Line, Training]]:
        """Ended runs that were read since coach was opened, newest first."""
        context = self._context
        found = []
        for run in sorted(context.snapshot.runs, key=lambda run: run.run_id, reverse=True)[:_MAX_ENDED]:
            training, state = context.trainings.of(run.run_id), context.state_of(run)
            if training is not None and is_final(state):
                found.append((heading(run.run_id, "", state, self._verdict(run.run_id)), training))
        return found
