"""One node: what it is doing, which job has which of its GPUs, and whether a job could start there now."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.analysis.queueing.free_gpus import allocation_map, free_gpus
from coach.model.slurm.cluster import GpuAllocation, Job, Node, is_final
from coach.sources.slurm.node_sets import expand_nodes
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.messages import ExplainWanted, Wanted
from coach.tui.question import Asked, Question
from coach.tui.render.allocation import node_fact_lines, node_job_lines, slot_lines
from coach.tui.render.asked import asked_line
from coach.tui.render.text import BLANK, Line, line, muted
from coach.tui.widgets.lines import LinesView


class NodeScreen(CoachScreen, screen="node"):
    """Asks once which job has which GPU, if any GPU of the node is in use."""

    def __init__(self, context: Context, name: str) -> None:
        super().__init__(context, ("cluster", f"node {name}"))
        self._name = name
        self._jobs_here: tuple[tuple[Job, ...], tuple[Job, ...]] = ((), ())
        """Of which queue, and those of it that are here: looked up once per answer."""

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()
        node = self._node()
        if node is not None and node.gpu_indices:
            self.questions = (Question.ALLOCATIONS,)
            self.post_message(Wanted(Question.ALLOCATIONS))

    def _node(self) -> Node | None:
        return next((node for node in self.context.snapshot.nodes if node.name == self._name), None)

    def show(self) -> None:
        node = self._node()
        if node is not None:
            self.pane("#body").set_lines(self._lines(node, self.app.size.width - 2))
        elif self.pane("#body").lines:
            self.note("the cluster no longer has this node: this is the last that was seen")
        else:
            self.pane("#body").set_lines([line(muted(" the cluster has no such node"))])

    def _lines(self, node: Node, width: int) -> list[Line]:
        context = self.context
        now_s, partitions = context.now_s, context.snapshot.partitions
        are_hidden = "jobs" in context.snapshot.hidden
        rows = node_fact_lines(node, free_gpus([node], partitions), now_s, width)
        if node.gpus:
            told: Asked[tuple[GpuAllocation, ...]] = context.answers[Question.ALLOCATIONS]
            slots = allocation_map([node], told.value or ())
            by_id = {job.job_id: job for job in self._jobs()}
            rows += [
                BLANK,
                asked_line("gpus by index", told, now_s, self.context.label)
                if self.questions
                else line(muted(" gpus by index")),
            ]
            is_known = told.value is not None
            rows += slot_lines(slots, by_id, is_known, width, are_others_hidden=are_hidden)
        here = node_job_lines(self._jobs(), width, are_others_hidden=are_hidden)
        return [*rows, BLANK, line(muted(" jobs here")), *here]

    def action_explain(self) -> None:
        self.post_message(ExplainWanted(node=self._node()))

    def _jobs(self) -> tuple[Job, ...]:
        jobs = self.context.snapshot.jobs
        if self._jobs_here[0] is not jobs:
            here = [job for job in jobs if not is_final(job.state) and self._name in expand_nodes(job.nodes)]
            self._jobs_here = (jobs, tuple(here))
        return self._jobs_here[1]
