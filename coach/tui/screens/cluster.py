"""The Cluster screen: partitions, nodes and the queue, as one looks at them first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial

from textual.widget import Widget

from coach.analysis.judging.ranking import by_cause, went_wrong
from coach.analysis.query.job_fields import job_vocabulary
from coach.analysis.query.node_fields import count_free, node_vocabulary
from coach.analysis.queueing.arrays import group_id, is_part
from coach.analysis.queueing.free_gpus import free_by_partition
from coach.model.slurm.cluster import Job, Node
from coach.sources.slurm.node_sets import expand_nodes
from coach.tui.arrangement import Arranged
from coach.tui.bases.table_views import TableViewScreen
from coach.tui.context import Context
from coach.tui.job_choice import Chosen, JobChoice, JobKeys, choose_job, choose_target
from coach.tui.messages import Done, ExplainWanted, FailedWanted, ScreenOpened, ScreenShown
from coach.tui.render.cluster import (
    NODE_COLUMNS,
    FreeGpus,
    empty_nodes_note,
    node_rows,
    nodes_in_order,
    nodes_title,
    partition_lines,
)
from coach.tui.render.findings import (
    CAUSE_COLUMNS,
    VERDICT_COLUMNS,
    cause_rows,
    finding_key,
    verdict_title,
)
from coach.tui.render.queue import (
    JOB_COLUMNS,
    Queue,
    QueueRow,
    empty_queue_note,
    in_place,
    is_own,
    job_of,
    job_rows,
    queue_of,
    queue_title,
    row_key,
    target_of,
)
from coach.tui.render.table import Rows
from coach.tui.table_view import TableView
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.lines import LinesView

MAX_VERDICTS = 5


class ClusterScreen(JobKeys, TableViewScreen, screen="cluster"):
    """Home. On top stands what `coach check` says of one's own jobs, as soon as anything is wrong: it takes
    its room from the nodes, and neither focus nor cursor from anybody."""

    not_in_footer = frozenset({"compare", "fix"})

    def __init__(self, context: Context) -> None:
        self._queue_view: TableView[Job] = TableView(
            lambda: job_vocabulary(context.user, context.now_s, expand_nodes), JOB_COLUMNS
        )
        self._node_view: TableView[Node] = TableView(
            lambda: node_vocabulary(
                count_free(context.snapshot.nodes, context.snapshot.partitions), expand_nodes
            ),
            NODE_COLUMNS,
        )
        super().__init__(context, ("cluster",), {"queue": self._queue_view, "nodes": self._node_view})
        self.job_choice = JobChoice(self, self._chosen)
        self._of_verdict = JobChoice(self, self._chosen_verdict)
        self._unfolded: set[str] = set()
        self._num_wrong = 0
        self._wrong: dict[str, str] = {}
        """The targets of the jobs that went wrong, by the keys of their rows."""
        self._free: Arranged[FreeGpus] = Arranged({}, self._deliver)
        self._found: Arranged[Rows] = Arranged(node_rows(()), self._deliver)
        self._queue: Arranged[Queue] = Arranged(Queue(), self._deliver)
        self._in_place: tuple[object, bool, list[Job]] = (None, False, [])
        """The queue, True if it has everybody's jobs, and the jobs in their order."""

    def compose_body(self) -> Iterator[Widget]:
        yield KeyedTable(CAUSE_COLUMNS, id="verdicts", classes="pane")
        yield LinesView(id="partitions", can_focus=False)
        yield KeyedTable(NODE_COLUMNS, id="nodes", classes="pane")
        yield KeyedTable(JOB_COLUMNS, id="queue", classes="pane")
        yield FilterLine()

    def on_mount(self) -> None:
        self.query_one("#queue").focus()
        self.post_message(FailedWanted())

    @property
    def verdicts(self) -> KeyedTable:
        return self.query_one("#verdicts", KeyedTable)

    @property
    def nodes(self) -> KeyedTable:
        return self.query_one("#nodes", KeyedTable)

    @property
    def queue(self) -> KeyedTable:
        return self.query_one("#queue", KeyedTable)

    def show(self) -> None:
        snapshot, context = self.context.snapshot, self.context
        width, height = self.app.size
        num_lines = self._show_verdicts(2 if height < 30 else MAX_VERDICTS)
        hidden = snapshot.hidden
        most = 2 if height < 30 else 4
        strip = partition_lines(snapshot.partitions, self._free_gpus(), width, most, "partitions" in hidden)
        partitions = self.pane("#partitions")
        partitions.styles.height = max(1, len(strip))
        partitions.set_lines(strip)
        nodes = self._found_nodes()
        self.nodes.lay_out(self._node_view.columns, self._node_view.sorted_column)
        has_nodes = "nodes" in snapshot.sources and snapshot.sources["nodes"].data_time_s is not None
        self.nodes.set_rows(nodes, empty_nodes_note(has_nodes, "nodes" in hidden))
        self.nodes.styles.height = min(
            max(1, self.nodes.num_rows) + 2, max(5, height * 2 // 5 - len(strip) - num_lines)
        )
        self.nodes.set_title(
            nodes_title(
                len(snapshot.nodes), self._node_view.view.filter, self.nodes.num_rows, "nodes" in hidden
            )
        )
        queue = self._shown_queue()
        status = snapshot.sources.get("jobs")
        is_told = snapshot.is_queue_whole or not context.are_all_shown
        has_answer = status is not None and status.data_time_s is not None
        has_answer = has_answer and is_told and not self._queue.is_late
        query = self._queue_view.view.filter
        self.queue.lay_out(self._queue_view.columns, self._queue_view.sorted_column)
        rows = job_rows(queue, context.user, context.now_s)
        are_all, are_others_hidden = context.are_all_shown, "jobs" in hidden
        empty = empty_queue_note(
            has_answer, are_all, query, context.label, are_others_hidden=are_others_hidden
        )
        self.queue.set_rows(rows, empty)
        num_jobs = len(snapshot.jobs) if is_told else None
        title = queue_title(
            queue, num_jobs, are_all, query, context.label, are_others_hidden=are_others_hidden
        )
        num_marked = len(self.queue.marked_keys)
        self.queue.set_title(f"{title} · {num_marked} selected, Esc clears" if num_marked else title)

    def _show_verdicts(self, most: int) -> int:
        """How many lines they take: none while nothing is wrong."""
        wrong, table = went_wrong(self.context.found, self.context.now_s), self.verdicts
        if not wrong and table.has_focus:
            self.queue.focus()
        table.display = bool(wrong)
        causes = by_cause(wrong)
        self._wrong = {finding_key(group[0]): group[0].target for group in causes}
        table.lay_out(VERDICT_COLUMNS, None)
        table.set_rows(cause_rows(causes, self.context.now_s))
        self._num_wrong = len(wrong)
        self.on_descendant_focus()
        num_lines = 2 + min(len(causes), most)
        table.styles.height = num_lines
        return num_lines if wrong else 0

    def on_descendant_focus(self) -> None:
        """Name the keys that lead from the focused pane to a cause."""
        context = self.context
        self.verdicts.set_title(
            verdict_title(
                self._num_wrong,
                len(context.found),
                len(context.unread),
                context.label,
                is_focused=self.focused is self.verdicts,
            )
        )

    def _deliver(self, callback: Callable[[], object]) -> None:
        self.app.post_message(Done(callback))

    def _free_gpus(self) -> FreeGpus:
        nodes, partitions = self.context.snapshot.nodes, self.context.snapshot.partitions
        make = partial(free_by_partition, nodes, partitions)
        return self._free.of(nodes, len(nodes), partitions, make, self.refresh_all)

    def _found_nodes(self) -> Rows:
        nodes, view = self.context.snapshot.nodes, copy(self._node_view)

        def make() -> Rows:
            return node_rows(nodes_in_order(view.matching(nodes), view.orders))

        return self._found.of(nodes, len(nodes), view.view, make, self.refresh_all)

    def _shown_queue(self) -> Queue:
        context, view, unfolded = self.context, copy(self._queue_view), frozenset(self._unfolded)
        jobs, user, are_all_shown = context.snapshot.jobs, context.user, context.are_all_shown

        def make() -> Queue:
            if self._in_place[0] is not jobs or self._in_place[1] != are_all_shown:
                asked = jobs if are_all_shown else [job for job in jobs if is_own(job, user)]
                self._in_place = (jobs, are_all_shown, in_place(asked, user))
            return queue_of(self._in_place[2], user, view.matching, unfolded, view.orders)

        way = (are_all_shown, unfolded, view.view)
        return self._queue.of(jobs, len(jobs), way, make, self.refresh_all)

    def _row(self) -> QueueRow | None:
        """The row under the cursor of the queue."""
        return self._shown_queue().row(self.queue.cursor_key)

    def action_unfold(self) -> None:
        """A row for each task of the array under the cursor, or one for all of them again."""
        row = self._row()
        if row is None or not is_part(job_of(row).job_id):
            self.note(f"{self.context.label('unfold')} unfolds an array: the cursor is on none")
            return
        self._unfolded ^= {group_id(job_of(row).job_id)}
        self.refresh_all()

    def action_toggle_all(self) -> None:
        self.context.are_all_shown = not self.context.are_all_shown
        self.post_message(ScreenShown())  # the app asks Slurm for other jobs now
        self.refresh_all()

    def action_copy(self) -> None:
        row = self._row()
        if self.focused is self.nodes:
            self.copy(self.nodes.cursor_key)
        elif self.focused is self.verdicts:
            target = self._wrong.get(self.verdicts.cursor_key or "")
            self.copy(target, target)
        else:
            self.copy(row_key(row) if row is not None else None)

    def action_explain(self) -> None:
        row = self._row()
        if self.focused is self.verdicts:
            target = self._wrong.get(self.verdicts.cursor_key or "")
            self.post_message(ExplainWanted(target, is_finding_alone=True))
        elif self.focused is self.nodes or row is None:
            super().action_explain()
        else:
            run = self.context.run_of_job(job_of(row).job_id)
            target = run.run_id if run is not None else row_key(row)
            self.post_message(ExplainWanted(target, job=job_of(row)))

    def point_at(self, target: str | None) -> None:
        run = self.context.run(target) if target is not None else None
        self.queue.focus()
        self.queue.go_to(str(run.job_id if run is not None else target))

    def show_only(self, words: str) -> None:
        """Filter everybody's jobs by these words."""
        if not self.context.are_all_shown:
            self.action_toggle_all()
        self._say(self._queue_view.filter(words))
        self._changed()

    def action_open(self) -> None:
        if self.focused is self.verdicts:
            if (target := self._wrong.get(self.verdicts.cursor_key or "")) is not None:
                self.post_message(ScreenOpened("job", target))
            return
        if self.focused is self.nodes and self.nodes.cursor_key is not None:
            self.post_message(ScreenOpened("node", self.nodes.cursor_key))
            return
        row = self._row()
        if row is None:
            self.note(f"the queue has no row to open; {self.context.label('pane')} goes to the nodes")
            return
        job, key = job_of(row), row_key(row)
        run = self.context.run_of_job(job.job_id)
        if run is not None and (self.context.user is None or is_own(job, self.context.user)):
            self.post_message(ScreenOpened("job", run.run_id))
        else:
            self.post_message(ScreenOpened("job", key))

    def _chosen(self) -> list[Chosen]:
        if self.focused is not self.queue:
            return []
        marked, queue = self.queue.marked_keys, self._shown_queue()
        rows = [queue.row(key) for key in marked] if marked else [self._row()]
        return [self._choose(row) for row in rows if row is not None]

    def _chosen_verdict(self) -> list[Chosen]:
        """The newest job of the cause under the cursor, as Enter opens it."""
        target = self._wrong.get(self.verdicts.cursor_key or "")
        chosen = choose_target(self.context, target) if target is not None else None
        return [chosen] if chosen is not None else []

    def action_fix(self) -> None:
        (self._of_verdict if self.focused is self.verdicts else self.job_choice).fix()

    def _choose(self, row: QueueRow) -> Chosen:
        """What the row shows, and no task that a filter hides."""
        job, target = job_of(row), target_of(row, self.context.snapshot.jobs)
        is_array = is_part(job.job_id) and (target is None or target.isdecimal() or "[" in target)
        chosen = choose_job(self.context, job, target or row_key(row), is_array=is_array)
        if target is not None or chosen.why_not_mine is not None:
            return chosen
        why = f"{job.job_id} is not all of job {group_id(job.job_id)}, and cannot be named by itself"
        return replace(chosen, why_not_mine=f"{why}: show all of it, without filter")

    def action_select(self) -> None:
        """Select the job under the cursor, or no longer, and go on to the next."""
        row = self._row()
        if row is None or self.focused is not self.queue:
            self.note(f"{self.context.label('select')} selects jobs of the queue")
            return
        if (why := self._choose(row).why_not_mine) is not None:
            self.note(why)
            return
        self.queue.toggle_mark()
        self.refresh_all()

    def on_keyed_table_opened(self) -> None:
        self.action_open()

    def go_back(self) -> bool:
        if self.queue.clear_marks():
            self.refresh_all()
            return True
        return self.clear_filters()
