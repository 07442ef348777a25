"""The detail beside the list on a wide terminal: the job under the cursor, drawn as on its own screen, or the
node.

It uses only data in memory. After the cursor has rested on a job, the session's threads read its files, as
for the job's own screen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coach.analysis.queueing.arrays import FoldedJob, fold
from coach.analysis.queueing.free_gpus import free_gpus
from coach.late import late
from coach.model.slurm.cluster import Job
from coach.render.text import line, muted, printable, short_id
from coach.tui.context import Context
from coach.tui.job_subject import JobSubject, job_subject
from coach.tui.render.allocation import node_fact_lines
from coach.tui.render.finding import cause_place
from coach.tui.render.queue import QueueRow, folded_of, is_own, job_of
from coach.tui.widgets.beside import Beside

if TYPE_CHECKING:
    from coach.tui.render import job_page
else:
    job_page = late("coach.tui.render", "job_page")

LEAST_WIDTH = 160
"""Below this width, the terminal shows only the list."""
_LEAST_DETAIL = 72
_UNREAD_STATES = frozenset({"PENDING", "CONFIGURING"})


def detail_width(width: int) -> int:
    """The width of the detail on a terminal of this width."""
    return max(_LEAST_DETAIL, width * 45 // 100)


class Detail:
    """Draws the detail, and names the targets to read for it."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def target_of_row(self, row: QueueRow) -> str | None:
        """The target to read for a row of the queue: the user's own job, if it has begun; else None."""
        job, context = job_of(row), self._context
        target = context.trainings.target_of(job, context.snapshot.runs)
        if not is_own(job, context.user) or job.state in _UNREAD_STATES:
            return None
        if target == job.job_id and (context.mode.is_recorded or _num_tasks(row) != 1):
            return None
        return target

    def show_row(self, beside: Beside, row: QueueRow, height: int) -> None:
        """Show the job, or the array, of a row."""
        job = job_of(row)
        name = self._context.trainings.target_of(job, self._context.snapshot.runs)
        self._show_job(beside, name, _folded(row), height)

    def show_target(self, beside: Beside, target: str, height: int) -> None:
        """Show a job or run by its name, even if it has left the queue."""
        context = self._context
        run = context.run(target)
        job = context.job_of_run(run) if run is not None else context.job(target)
        self._show_job(beside, target, fold([job])[0] if job is not None else None, height)

    def show_node(self, beside: Beside, name: str) -> None:
        """Show a node: its state, and its allocated resources."""
        snapshot, now_s = self._context.snapshot, self._context.now_s
        node = next((node for node in snapshot.nodes if node.name == name), None)
        if node is None:
            self.show_nothing(beside)
            return
        free = free_gpus([node], snapshot.partitions)
        beside.show(f"node {printable(name)}", lambda width: node_fact_lines(node, free, now_s, width))

    def show_nothing(self, beside: Beside) -> None:
        """Show that there is no row."""
        beside.show("", lambda width: [line(muted(" the row under the cursor is shown here"))])

    def _show_job(self, beside: Beside, name: str, folded: FoldedJob | None, height: int) -> None:
        context = self._context
        subject = job_subject(context, name, folded, None)
        if not subject.is_known:
            self.show_nothing(beside)
            return
        page = replace(subject, is_read=subject.followed is not None, can_fix=context.mode.is_live)
        place = cause_place(subject.diagnosis)
        tails = subject.followed.log_tails if subject.followed is not None else ()
        tail = min(
            tails,
            key=lambda each: (place is None or each.file != place[0], "stderr" in each.file, each.file),
            default=None,
        )
        marked = place[1] if place is not None and tail is not None and tail.file == place[0] else None
        beside.show(
            _title(subject),
            lambda width: job_page.page_lines(page, width, height),
            tail,
            marked,
            context.now_s if subject.is_live else None,
        )


def _title(subject: JobSubject) -> str:
    job = subject.job
    name = f" {printable(job.name)}" if job is not None else ""
    return f"{short_id(subject.target)}{name if subject.run is None else ''}"


def _folded(row: QueueRow) -> FoldedJob:
    return folded_of(row) or fold([job_of(row)])[0]


def _num_tasks(row: QueueRow) -> int:
    return 1 if isinstance(row, Job) else _folded(row).num_tasks
