"""The Cluster screen, the first one: the user's jobs and their progress, failures, free GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace

from textual.containers import Container, Vertical
from textual.timer import Timer
from textual.widget import Widget

from coach.analysis.queueing.arrays import group_id, is_part
from coach.model.slurm.cluster import Job, Node
from coach.tui.arrangement import Arranged
from coach.tui.bases.table_views import TableViewScreen
from coach.tui.context import Context
from coach.tui.first_screen.detail import LEAST_WIDTH, Detail, detail_width
from coach.tui.first_screen.overview import Overview
from coach.tui.first_screen.own_jobs import OwnJobs
from coach.tui.first_screen.saved import (
    ViewChoice,
    ended_critically,
    failed_today,
    name_of,
    saved_words,
    view_named,
)
from coach.tui.first_screen.tables import node_view, queue_view
from coach.tui.job_choice import Chosen, JobChoice, JobKeys, choose_job, choose_target
from coach.tui.messages import (
    Done,
    ExplainWanted,
    FirstLookWanted,
    RememberedWanted,
    SavedViewsChanged,
    ScreenOpened,
    ScreenShown,
)
from coach.tui.render.cluster import (
    NODE_COLUMNS,
    empty_nodes_note,
    measured_columns,
    node_rows,
    nodes_in_order,
    nodes_title,
)
from coach.tui.render.findings import (
    CAUSE_COLUMNS,
    VERDICT_COLUMNS,
    cause_rows,
    finding_key,
    newest_critical,
    verdict_title,
)
from coach.tui.render.queue import (
    JOB_COLUMNS,
    Queue,
    QueueRow,
    in_place,
    is_own,
    job_of,
    job_rows,
    queue_of,
    queue_title,
    row_key,
    target_of,
    training_columns,
)
from coach.tui.widgets.beside import Beside
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.lines import LinesView
from coach.workflows.watching.table_views import SavedView

MAX_VERDICTS = 5
REST_S = 0.3
"""After the cursor has rested on a job for this time, in seconds, its files are read for the detail beside
the list."""
_LEAST_QUEUE = 5
_ROWS_AROUND = 2
"""The top line and the keys."""


class ClusterScreen(JobKeys, TableViewScreen, screen="cluster"):
    """The home screen: the user's jobs and their progress on top; below, the findings of failed jobs, then
    the free GPUs and the nodes. On a wide terminal, the job under the cursor is shown beside the list."""

    not_in_footer = frozenset({"compare", "fix"})

    def __init__(self, context: Context) -> None:
        self._queue_view, self._node_view = queue_view(context), node_view(context)
        super().__init__(context, ("cluster",), {"queue": self._queue_view, "nodes": self._node_view})
        self.job_choice = JobChoice(self, self._chosen, self._deselect)
        self._of_verdict = JobChoice(self, self._chosen_verdict)
        self._unfolded: set[str] = set()
        self._newest_critical: str | None = None
        self._wrong: dict[str, str] = {}
        """The targets of the failed jobs, by the keys of their rows."""
        self._own_jobs = OwnJobs(context)
        self._causes = self._own_jobs.causes()
        self._detail = Detail(context)
        self._overview = Overview(context, self._deliver, self.refresh_all)
        self._resting: Timer | None = None
        self._beside: object = None
        """The subject of the detail beside the list. Its files are read after the cursor has rested on it."""
        self._found: Arranged[tuple[list[Node], list[str]]] = Arranged(([], []), self._deliver)
        self._queue: Arranged[Queue] = Arranged(Queue(), self._deliver)
        self._is_failed_shown = False
        self._critical: frozenset[str] = frozenset()
        """The targets that ended with a critical cause."""
        self._failed: tuple[object, object, object, list[Job]] = (None, None, None, [])
        """A cache: the queue, the past jobs, the critical targets, and the jobs of these that failed
        today."""
        self._in_place: tuple[object, bool, list[Job]] = (None, False, [])
        """A cache: the queue, True if it has everybody's jobs, and the sorted jobs."""

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="first", can_focus=False)
        with Container(id="home"):
            with Vertical(id="mine"):
                yield KeyedTable(JOB_COLUMNS, id="queue", classes="pane")
                yield LinesView(id="running", classes="pane", can_focus=False)
                yield KeyedTable(CAUSE_COLUMNS, id="verdicts", classes="pane")
            with Vertical(id="around"):
                yield Beside()
                yield LinesView(id="partitions", can_focus=False)
                yield KeyedTable(NODE_COLUMNS, id="nodes", classes="pane")
        yield FilterLine()

    def on_mount(self) -> None:
        self.query_one("#queue").focus()
        self.post_message(RememberedWanted())
        self.post_message(FirstLookWanted())

    @property
    def verdicts(self) -> KeyedTable:
        return self.query_one("#verdicts", KeyedTable)

    @property
    def nodes(self) -> KeyedTable:
        return self.query_one("#nodes", KeyedTable)

    @property
    def queue(self) -> KeyedTable:
        return self.query_one("#queue", KeyedTable)

    @property
    def _is_detail_shown(self) -> bool:
        return self.app.size.width >= LEAST_WIDTH and not self.context.is_detail_hidden

    def show(self) -> None:
        width, height = self.app.size
        height -= self._show_first_start(width)
        is_wide, right = self._is_detail_shown, detail_width(width)
        self.query_one(Beside).display = is_wide
        self.query_one("#home").styles.layout = "horizontal" if is_wide else "vertical"
        around = self.query_one("#around")
        around.styles.width = right if is_wide else "1fr"
        around.styles.height = "1fr" if is_wide else "auto"
        around.set_class(is_wide, "-beside")
        left = width - right if is_wide else width
        num_verdicts = self._show_verdicts(2 if height < 30 else MAX_VERDICTS)
        num_cluster = self._show_cluster(right - 1 if is_wide else width, height, num_verdicts)
        taken = _ROWS_AROUND + num_verdicts
        taken += self._leave_out_cluster(height - taken, num_cluster, is_beside=is_wide)
        self._show_queue(left)
        self._share_room(left, height - taken)
        self._show_detail()

    def _show_first_start(self, width: int) -> int:
        """Show the text of the first start. Returns its number of lines: 0 after the first key, and at later
        starts."""
        rows, strip = self._own_jobs.first_start_lines(width), self.pane("#first")
        strip.display = bool(rows)
        strip.styles.height = max(1, len(rows))
        strip.set_lines(rows)
        return len(rows)

    def _show_cluster(self, width: int, height: int, num_verdicts: int) -> int:
        """Show the strips and the nodes. Returns their number of lines."""
        snapshot = self.context.snapshot
        strip = self._overview.lines(width, height)
        partitions = self.pane("#partitions")
        partitions.styles.height = max(1, len(strip))
        partitions.set_lines(strip)
        uses = self.context.trainings.uses_by_node(self.context.now_s)
        columns = self._node_view.columns or (measured_columns(width) if uses else ())
        self.nodes.lay_out(columns, self._node_view.sorted_column)
        has_nodes = "nodes" in snapshot.sources and snapshot.sources["nodes"].data_time_s is not None
        is_hidden, query = "nodes" in snapshot.hidden, self._node_view.view.filter
        found, names = self._found_nodes()
        rows = node_rows(found, uses, self.context.now_s, names)
        self.nodes.set_rows(rows, empty_nodes_note(has_nodes, is_hidden, query))
        most = max(5, height * 2 // 5 - len(strip) - num_verdicts)
        num_lines = min(max(1, self.nodes.num_rows) + 2, most)
        self.nodes.styles.height = self._height_of(self.nodes, num_lines)
        self.nodes.set_title(nodes_title(len(snapshot.nodes), query, self.nodes.num_rows, is_hidden))
        return num_lines + len(strip)

    def _leave_out_cluster(self, room: int, num_cluster: int, *, is_beside: bool) -> int:
        """On a low terminal, hide the nodes, then the strips above them: jobs come first. Returns the number
        of lines that they take below the queue."""
        height = self.nodes.styles.height
        num_nodes = int(height.value) if height is not None else 0
        are_nodes_shown = is_beside or room - num_cluster >= _LEAST_QUEUE
        is_strip_shown = is_beside or room - num_cluster + num_nodes >= _LEAST_QUEUE
        self.nodes.display = are_nodes_shown
        self.pane("#partitions").display = is_strip_shown
        if self.nodes.has_focus and not are_nodes_shown:
            self.queue.focus()
        if is_beside or not is_strip_shown:
            return 0
        return num_cluster if are_nodes_shown else num_cluster - num_nodes

    def _show_queue(self, width: int) -> None:
        snapshot, context, queue = self.context.snapshot, self.context, self._shown_queue()
        status = snapshot.sources.get("jobs")
        are_all, are_others_hidden = context.are_all_shown, "jobs" in snapshot.hidden
        is_told = snapshot.is_queue_whole or not are_all
        has_answer = status is not None and status.data_time_s is not None
        has_answer = has_answer and is_told and not self._queue.is_late
        query, columns = self._queue_view.view.filter, self._queue_view.columns
        if not columns and context.trainings.is_any_measured:
            has_use = context.trainings.is_any_use_measured
            columns = training_columns(width, are_all_shown=are_all, has_use=has_use)
        self.queue.lay_out(columns, self._queue_view.sorted_column)
        rows = job_rows(queue, context.user, context.now_s, self._own_jobs.of, self._own_jobs.array_of)
        empty = self._own_jobs.empty_queue_note(query, has_answer=has_answer, is_failed=self._is_failed_shown)
        self.queue.set_rows(rows, empty)
        num_jobs = len(snapshot.jobs) if is_told else None
        title = queue_title(
            queue, num_jobs, are_all, query, context.label, are_others_hidden=are_others_hidden
        )
        if (view := name_of(context, self._shown_view)) is not None:
            title = f"{view} · {title}"
        num_marked = len(self.queue.marked_keys)
        self.queue.set_title(f"{title} · {num_marked} selected, Esc clears" if num_marked else title)

    def _share_room(self, width: int, num_lines: int) -> None:
        """Give the lines below a short queue to the curves of trainings, or to the newest runs."""
        wanted, pane = max(_LEAST_QUEUE, self.queue.num_rows + 2), self.pane("#running")
        left = num_lines - wanted
        title, rows = self._own_jobs.filling(width - 2, left - 1)
        pane.display = bool(rows)
        self.queue.styles.height = wanted if rows else "1fr"
        if rows:
            pane.set_title(title)
            pane.set_lines(rows)

    def _show_detail(self) -> None:
        beside = self.query_one(Beside)
        if not beside.display:
            return
        row, target, height = self._row(), self._target_beside(), self.app.size.height
        shown = (self.nodes.has_focus, target, row and row_key(row), row and job_of(row).state)
        if shown != self._beside:
            self._beside = shown
            self._rest_soon()
        if self.nodes.has_focus and self.nodes.cursor_key is not None:
            self._detail.show_node(beside, self.nodes.cursor_key)
        elif target is not None:
            self._detail.show_target(beside, target, height)
        elif row is not None:
            self._detail.show_row(beside, row, height)
        else:
            self._detail.show_nothing(beside)

    def _target_beside(self) -> str | None:
        """The target shown beside the list by its name: the newest job of the cause under the cursor; if the
        queue has no row, the last failure, else the newest run."""
        if self.verdicts.has_focus:
            return self._wrong.get(self.verdicts.cursor_key or "")
        if self._row() is not None:
            return None
        return next(iter(self._wrong.values()), None) or self._own_jobs.newest_run()

    def on_keyed_table_moved(self) -> None:
        """Show the data in memory at once; the files are read after the cursor has rested."""
        self._show_detail()

    def _rest_soon(self) -> None:
        if self._resting is not None:
            self._resting.stop()
        self._resting = self.set_timer(REST_S, self._read_rested) if self._is_detail_shown else None

    def _read_rested(self) -> None:
        """Ask the app to read the files of the job under the cursor."""
        row = self._row()
        target = self._target_beside()
        if target is None and row is not None:
            target = self._detail.target_of_row(row)
        if self.nodes.has_focus or not self._is_detail_shown:
            target = None
        wanted = (target,) if target is not None else ()
        if wanted != self.also_followed:
            self.also_followed = wanted
            self.post_message(ScreenShown())

    def action_detail(self) -> None:
        """Hide the detail beside the list, or show it again."""
        if self.app.size.width < LEAST_WIDTH:
            self.note(f"the detail needs {LEAST_WIDTH} columns: this terminal has {self.app.size.width}")
            return
        self.context.is_detail_hidden = not self.context.is_detail_hidden
        self._rest_soon()
        self._changed()

    def _show_verdicts(self, most: int) -> int:
        """Show the verdicts. Returns their number of lines: 0 if nothing is wrong."""
        causes, table = self._own_jobs.causes(), self.verdicts
        self._causes = causes
        self._critical = ended_critically(causes)
        if not causes and table.has_focus:
            self.queue.focus()
        table.display = bool(causes)
        self._wrong = {finding_key(group[0]): group[0].target for group in causes}
        table.lay_out(VERDICT_COLUMNS, None)
        table.set_rows(cause_rows(causes, self.context.now_s))
        self._title_verdicts()
        newest = newest_critical(causes)
        if newest is not None and newest != self._newest_critical and not table.has_focus:
            table.go_to(newest)
            self._newest_critical = newest
        num_lines = 2 + min(len(causes), most)
        table.styles.height = self._height_of(table, num_lines)
        return num_lines if causes else 0

    def _height_of(self, table: KeyedTable, num_lines: int) -> int | str:
        """The height of a table: its lines among the other panes, or the whole screen if it is enlarged."""
        return "1fr" if table is self.maximized else num_lines

    def watch_maximized(self) -> None:
        """Give the enlarged pane its height at once, and take it back."""
        if self.is_mounted:
            self.show()

    def on_descendant_focus(self) -> None:
        """Name the keys that lead from the focused pane to a cause, and show the pane's row beside the
        list."""
        self._show_detail()
        self._title_verdicts()

    def _title_verdicts(self) -> None:
        context = self.context
        self.verdicts.set_title(
            verdict_title(
                self._causes,
                len(context.found),
                len(context.unread),
                context.label,
                is_focused=self.focused is self.verdicts,
            )
        )

    def _deliver(self, callback: Callable[[], object]) -> None:
        self.app.post_message(Done(callback))

    def _found_nodes(self) -> tuple[list[Node], list[str]]:
        """The shown nodes, sorted, and their names."""
        nodes, view = self.context.snapshot.nodes, copy(self._node_view)

        def make() -> tuple[list[Node], list[str]]:
            found = nodes_in_order(view.matching(nodes), view.orders)
            return found, [node.name for node in found]

        return self._found.of(nodes, len(nodes), view.view, make, self.refresh_all)

    def _shown_queue(self) -> Queue:
        context, view, unfolded = self.context, copy(self._queue_view), frozenset(self._unfolded)
        jobs, user, are_all_shown = self._asked_jobs(), context.user, context.are_all_shown

        def make() -> Queue:
            if self._in_place[0] is not jobs or self._in_place[1] != are_all_shown:
                asked = jobs if are_all_shown else [job for job in jobs if is_own(job, user)]
                self._in_place = (jobs, are_all_shown, in_place(asked, user))
            return queue_of(self._in_place[2], user, view.matching, unfolded, view.orders)

        way = (are_all_shown, unfolded, view.view)
        return self._queue.of(jobs, len(jobs), way, make, self.refresh_all)

    def _asked_jobs(self) -> Sequence[Job]:
        """The jobs of the queue, or those that failed today. Returns the same object until there are new
        data."""
        jobs, past = self.context.snapshot.jobs, self.context.answers.past_jobs
        if not self._is_failed_shown:
            return jobs
        if self._failed[0] is not jobs or self._failed[1:3] != (past, self._critical):
            found = failed_today(self.context, jobs, self._critical)
            self._failed = (jobs, past, self._critical, found)
        return self._failed[3]

    def _row(self) -> QueueRow | None:
        """The row under the cursor of the queue."""
        return self._shown_queue().row(self.queue.cursor_key)

    def action_unfold(self) -> None:
        """Unfold the array under the cursor into one row per task, or fold it again."""
        row = self._row()
        if row is None or not is_part(job_of(row).job_id):
            self.note(f"{self.context.label('unfold')} unfolds an array: the cursor is not on one")
            return
        self._unfolded ^= {group_id(job_of(row).job_id)}
        self.refresh_all()

    def action_toggle_all(self) -> None:
        self._is_failed_shown = False
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

    def point_at(self, target: str) -> bool:
        run = self.context.run(target)
        self.show()  # a new job has no row yet
        self.queue.focus()
        return self.queue.go_to(str(run.job_id if run is not None else target))

    def show_only(self, words: str, view: str = "") -> None:
        """Filter everybody's jobs by these words, or show a saved view."""
        if view:
            self._show_view(view)
            return
        self._show_whose(is_all=True)
        self._say(self._queue_view.filter(words))
        self._changed()

    def _show_whose(self, *, is_all: bool) -> None:
        self._is_failed_shown = False
        if self.context.are_all_shown != is_all:
            self.action_toggle_all()

    @property
    def _shown_view(self) -> SavedView:
        """The current view of the queue."""
        return SavedView("", self._queue_view.view, self.context.are_all_shown, self._is_failed_shown)

    def action_views(self) -> None:
        """Choose a view by its name, or save the current one."""
        palette = ViewChoice(self.context, self._show_view, self._save_view, self._forget_view)
        self.app.push_screen(palette)

    def _show_view(self, name: str) -> None:
        chosen = view_named(self.context, name)
        if chosen is None:
            return
        self._show_whose(is_all=chosen.is_all)
        self._is_failed_shown = chosen.is_failed_today
        self._say(self._queue_view.restore(chosen.view))
        self.set_focus(self.queue)
        self._changed()

    def _save_view(self, name: str) -> None:
        if self._is_failed_shown:
            self.note("this view has a name already: failed today")
            return
        self.context.saved_views[name] = replace(self._shown_view, name=name)
        self.post_message(SavedViewsChanged())
        self.refresh_all()
        self.note(saved_words(self.context, name))

    def _forget_view(self, name: str) -> None:
        self.context.saved_views.pop(name, None)
        self.post_message(SavedViewsChanged())
        self.refresh_all()
        self.note(f"{name} is forgotten")

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
        past = next((each for each in self.context.answers.past_jobs if each.job is job), None)
        if past is not None:
            self.post_message(ScreenOpened("job", past.run_id or key, *([] if past.run_id else [past])))
        elif run is not None and (self.context.user is None or is_own(job, self.context.user)):
            self.post_message(ScreenOpened("job", run.run_id))
        else:
            self.post_message(ScreenOpened("job", key))

    def _chosen(self) -> list[Chosen]:
        if self.focused is self.nodes or self.focused is self.verdicts:
            return []
        marked, queue = self.queue.marked_keys, self._shown_queue()
        rows = [queue.row(key) for key in marked] if marked else [self._row()]
        return [self._choose(row) for row in rows if row is not None]

    def _chosen_verdict(self) -> list[Chosen]:
        """The newest job of the cause under the cursor, which Enter also opens."""
        target = self._wrong.get(self.verdicts.cursor_key or "")
        chosen = choose_target(self.context, target) if target is not None else None
        return [chosen] if chosen is not None else []

    def action_fix(self) -> None:
        (self._of_verdict if self.focused is self.verdicts else self.job_choice).fix()

    def _choose(self, row: QueueRow) -> Chosen:
        """The jobs of the row, without tasks that a filter hides."""
        job, target = job_of(row), target_of(row, self.context.snapshot.jobs)
        is_array = is_part(job.job_id) and (target is None or target.isdecimal() or "[" in target)
        chosen = choose_job(self.context, job, target or row_key(row), is_array=is_array)
        if target is not None or chosen.why_not_mine is not None:
            return chosen
        why = f"{job.job_id} is not all of job {group_id(job.job_id)}, and cannot be named by itself"
        return replace(chosen, why_not_mine=f"{why}: show all of it, without filter")

    def action_select(self) -> None:
        """Select or deselect the job under the cursor, and move to the next."""
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

    def _deselect(self) -> bool:
        """End the selection. Returns False if there was none."""
        had_marks = self.queue.clear_marks()
        if had_marks:
            self.refresh_all()
        return had_marks

    def go_back(self) -> bool:
        if self._deselect():
            return True
        if self._is_failed_shown:
            self._is_failed_shown = False
            self._changed()
            return True
        return self.clear_filters()
