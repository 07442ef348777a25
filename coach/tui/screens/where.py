"""Where a job could start now: what is free in each partition, how long a job may run there, and whether one may use it."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.analysis.free_gpus import free_by_partition
from coach.tui.asked import Asked, Question
from coach.tui.base import CoachScreen, Context
from coach.tui.keys import bindings_of
from coach.tui.messages import Wanted
from coach.tui.render.asked import asked_line
from coach.tui.render.where import where_lines
from coach.tui.widgets.lines import LinesView
from coach.workflows.place_in_queue import PlaceInQueue


class WhereScreen(CoachScreen):
    """What is free comes with the nodes; one's accounts are asked only where a partition is not open to all."""

    PLACE = "where"
    BINDINGS = bindings_of("where")

    def __init__(self, context: Context) -> None:
        super().__init__(context, ("cluster", "where"))

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()
        partitions = self.context.snapshot.partitions
        if any(each.allow_accounts is not None or each.allow_qos is not None for each in partitions):
            self.questions = (Question.PLACE_IN_QUEUE,)
            self.post_message(Wanted(Question.PLACE_IN_QUEUE))

    def show(self) -> None:
        snapshot, now_s = self.context.snapshot, self.context.now_s
        told: Asked[PlaceInQueue] = self.context.answers[Question.PLACE_IN_QUEUE]
        associations = told.value.associations.value if told.value is not None else None
        free = free_by_partition(snapshot.nodes, snapshot.partitions)
        rows = where_lines(snapshot.partitions, free, associations, self.app.size.width - 2)
        heading = [asked_line("your accounts", told, now_s)] if self.questions else []
        self.pane("#body").set_lines([*heading, *rows])
