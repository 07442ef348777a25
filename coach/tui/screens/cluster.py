"""The Cluster screen: partitions, nodes and the queue, as one looks at them first."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget
from textual.widgets import Input

from coach.analysis.arrays import group_id, is_part
from coach.analysis.free_gpus import free_by_partition
from coach.tui.base import Context
from coach.tui.choosing import ChoosingScreen, Chosen
from coach.tui.keys import bindings_of
from coach.tui.messages import JobOpened, NodeOpened, RunOpened
from coach.tui.render.cluster import NODE_COLUMNS, FreeGpus, node_rows, partition_lines
from coach.tui.render.queue import (
    JOB_COLUMNS,
    QueueRow,
    arranged,
    empty_queue_note,
    is_own,
    job_of,
    job_rows,
    queue_title,
    row_key,
)
from coach.tui.render.text import printable
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.lines import LinesView


class ClusterScreen(ChoosingScreen):
    """Home."""

    PLACE = "cluster"
    BINDINGS = bindings_of("cluster")

    def __init__(self, context: Context) -> None:
        super().__init__(context, ("cluster",))
        self._are_all_shown = True
        self._unfolded: set[str] = set()
        self._free: tuple[object, object, FreeGpus] = (None, None, {})
        """What is free, and of which nodes and partitions: counted once per answer."""
        self._arranged: tuple[object, object, list[QueueRow]] = (None, None, [])
        """The rows of the queue, and of which jobs in which way."""

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="partitions", can_focus=False)
        yield KeyedTable(NODE_COLUMNS, id="nodes")
        yield KeyedTable(JOB_COLUMNS, id="queue")
        yield FilterLine()

    def on_mount(self) -> None:
        self.query_one("#queue").focus()

    @property
    def nodes(self) -> KeyedTable:
        return self.query_one("#nodes", KeyedTable)

    @property
    def queue(self) -> KeyedTable:
        return self.query_one("#queue", KeyedTable)

    def show(self) -> None:
        snapshot, context = self.context.snapshot, self.context
        width, height = self.app.size
        strip = partition_lines(snapshot.partitions, self._free_gpus(), width, 2 if height < 30 else 4)
        partitions = self.pane("#partitions")
        partitions.styles.height = max(1, len(strip))
        partitions.set_lines(strip)
        nodes = node_rows(snapshot.nodes)
        has_nodes = "nodes" in snapshot.sources and snapshot.sources["nodes"].data_time_s is not None
        self.nodes.set_rows(nodes, "no node" if has_nodes else "waiting for the first answer…")
        self.nodes.styles.height = min(max(1, len(nodes)) + 2, max(5, height * 2 // 5 - len(strip)))
        num_shown = self.nodes.num_rows
        query = self.nodes.query_text
        self.nodes.set_title(
            f"nodes · {len(nodes)}" + (f' · filter "{printable(query)}": {num_shown}' if query else "")
        )
        rows = job_rows(self._rows(), context.user, context.now_s)
        status = snapshot.sources.get("jobs")
        has_answer = status is not None and status.data_time_s is not None
        query = self.queue.query_text
        self.queue.set_rows(rows, empty_queue_note(has_answer, self._are_all_shown, query))
        title = queue_title(snapshot.jobs, context.user, self._are_all_shown, query, self.queue.num_rows)
        num_marked = len(self.queue.marked_keys)
        self.queue.set_title(f"{title} · {num_marked} selected, Esc clears" if num_marked else title)

    def _free_gpus(self) -> FreeGpus:
        nodes, partitions = self.context.snapshot.nodes, self.context.snapshot.partitions
        if self._free[0] is not nodes or self._free[1] is not partitions:
            self._free = (nodes, partitions, free_by_partition(nodes, partitions))
        return self._free[2]

    def _rows(self) -> list[QueueRow]:
        jobs, way = self.context.snapshot.jobs, (self._are_all_shown, frozenset(self._unfolded))
        if self._arranged[0] is not jobs or self._arranged[1] != way:
            self._arranged = (jobs, way, arranged(jobs, self.context.user, *way))
        return self._arranged[2]

    def _row(self) -> QueueRow | None:
        """The row under the cursor of the queue."""
        key = self.queue.cursor_key
        return next((row for row in self._rows() if row_key(row) == key), None) if key is not None else None

    def action_unfold(self) -> None:
        """A row for each task of the array under the cursor, or one for all of them again."""
        row = self._row()
        if row is None or not is_part(job_of(row).job_id):
            self.note("u unfolds an array: the cursor is on none")
            return
        self._unfolded ^= {group_id(job_of(row).job_id)}
        self.refresh_all()

    def action_why(self) -> None:
        if self.queue.cursor_key is not None:
            self.post_message(JobOpened(self.queue.cursor_key))

    def action_toggle_all(self) -> None:
        self._are_all_shown = not self._are_all_shown
        self.refresh_all()

    def action_open(self) -> None:
        if self.nodes.has_focus and self.nodes.cursor_key is not None:
            self.post_message(NodeOpened(self.nodes.cursor_key))
            return
        row = self._row()
        if row is None:
            self.note("the queue has no row to open; Tab goes to the nodes")
            return
        job, key = job_of(row), row_key(row)
        run = self.context.run_of_job(job.job_id)
        if run is not None and (self.context.user is None or is_own(job, self.context.user)):
            self.post_message(RunOpened(run.run_id))
        else:
            self.post_message(JobOpened(key))

    def chosen(self) -> list[Chosen]:
        if not self.queue.has_focus:
            return []
        marked = set(self.queue.marked_keys)
        rows = [row for row in self._rows() if row_key(row) in marked] if marked else [self._row()]
        return [
            self.choose_job(
                job_of(row), row_key(row), is_array=is_part(job_of(row).job_id) and row_key(row).isdecimal()
            )
            for row in rows
            if row is not None
        ]

    def action_select(self) -> None:
        """Select the job under the cursor, or no longer, and go on to the next."""
        row = self._row()
        if row is None or not self.queue.has_focus:
            self.note("Space selects jobs of the queue")
            return
        if (why := self.choose_job(job_of(row), row_key(row)).why_not_mine) is not None:
            self.note(why)
            return
        self.queue.toggle_mark()
        self.refresh_all()

    def action_filter(self) -> None:
        table = self.nodes if self.nodes.has_focus else self.queue
        self.query_one(FilterLine).edit(table)

    def action_zoom(self) -> None:
        if self.maximized is not None:
            self.minimize()
        elif self.focused is not None:
            self.maximize(self.focused)

    def on_keyed_table_opened(self) -> None:
        self.action_open()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one(FilterLine).apply()
        self.refresh_all()

    def go_back(self) -> bool:
        if self.queue.clear_marks():
            self.refresh_all()
            return True
        was_filtered = self.query_one(FilterLine).clear_filter((self.nodes, self.queue))
        if was_filtered:
            self.refresh_all()
        return was_filtered
