"""The Where screen: the free GPUs of each partition, its time limit, and if the user may use it."""

from __future__ import annotations

from functools import partial

from coach.analysis.queueing.free_gpus import free_by_partition
from coach.render.text import Line
from coach.tui.arrangement import Arranged
from coach.tui.bases.page import PageScreen
from coach.tui.context import Context
from coach.tui.messages import Done, Wanted
from coach.tui.question import Answer, Question
from coach.tui.render.answer import answer_line
from coach.tui.render.cluster import FreeGpus
from coach.tui.render.where import where_lines
from coach.workflows.jobs.place_in_queue import PlaceInQueue


class WhereScreen(PageScreen, screen="where"):
    """Where a job could start now. Free GPUs come from the nodes in memory; Slurm is asked for the user's
    accounts only if a partition is not open to all."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._free: Arranged[FreeGpus] = Arranged({}, lambda done: self.app.post_message(Done(done)))

    def on_mount(self) -> None:
        partitions = self.context.snapshot.partitions
        if any(each.allow_accounts is not None or each.allow_qos is not None for each in partitions):
            self.questions = (Question.PLACE_IN_QUEUE,)
            self.post_message(Wanted(Question.PLACE_IN_QUEUE))

    def lines(self, width: int) -> list[Line]:
        snapshot, now_s = self.context.snapshot, self.context.now_s
        answer: Answer[PlaceInQueue] = self.context.answers[Question.PLACE_IN_QUEUE]
        associations = answer.value.associations.value if answer.value is not None else None
        nodes, partitions = snapshot.nodes, snapshot.partitions
        count = partial(free_by_partition, nodes, partitions)
        free = self._free.of(nodes, len(nodes), partitions, count, self.refresh_all)
        is_hidden = "partitions" in snapshot.hidden
        rows = where_lines(partitions, free, associations, width, is_hidden)
        heading = [answer_line("your accounts", answer, now_s, self.context.label)] if self.questions else []
        return [*heading, *rows]
