"""The Cluster screen: partitions, nodes and the queue, as one looks at them first."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget
from textual.widgets import Input

from coach.tui.base import CoachScreen, Context
from coach.tui.keys import bindings_of
from coach.tui.messages import CancelRequested, JobOpened, RunOpened
from coach.tui.render.cluster import NODE_COLUMNS, node_rows, partition_lines
from coach.tui.render.queue import JOB_COLUMNS, empty_queue_note, is_own, job_rows, queue_title
from coach.tui.render.text import plural, printable
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.lines import LinesView


class ClusterScreen(CoachScreen):
    """Home."""

    PLACE = "cluster"
    BINDINGS = bindings_of("cluster")

    def __init__(self, context: Context) -> None:
        super().__init__(context, ("cluster",))
        self._are_all_shown = True

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
        strip = partition_lines(snapshot.partitions, width, 2 if height < 30 else 4)
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
        rows = job_rows(snapshot.jobs, context.user, self._are_all_shown, context.now_s)
        status = snapshot.sources.get("jobs")
        has_answer = status is not None and status.data_time_s is not None
        query = self.queue.query_text
        self.queue.set_rows(rows, empty_queue_note(has_answer, self._are_all_shown, query))
        title = queue_title(snapshot.jobs, context.user, self._are_all_shown, query, self.queue.num_rows)
        self.queue.set_title(title)

    def action_toggle_all(self) -> None:
        self._are_all_shown = not self._are_all_shown
        self.refresh_all()

    def action_open(self) -> None:
        key = self.queue.cursor_key
        if not self.queue.has_focus or key is None:
            self.note(f"Enter opens a job: Tab goes to the queue ({plural(self.queue.num_rows, 'row')})")
            return
        job = self.context.job(key)
        run = self.context.run_of_job(key)
        if run is not None and (job is None or self.context.user is None or is_own(job, self.context.user)):
            self.post_message(RunOpened(run.run_id))
        else:
            self.post_message(JobOpened(key))

    def action_cancel(self) -> None:
        if self.is_off("cancel"):
            return
        job = self.context.job(self.queue.cursor_key)
        if job is None or not self.queue.has_focus:
            self.note("x cancels the job under the cursor of the queue")
        elif not is_own(job, self.context.user):
            self.note(f"job {printable(job.job_id)} is {printable(job.user)}'s, not yours")
        else:
            self.post_message(CancelRequested(job.job_id, f"{job.job_id} {job.name} ({job.state})"))

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
        was_filtered = self.query_one(FilterLine).clear_filter((self.nodes, self.queue))
        if was_filtered:
            self.refresh_all()
        return was_filtered
