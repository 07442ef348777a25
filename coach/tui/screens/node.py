"""The Node screen: the node's GPUs with their use, its jobs, the resources that a job could get, and its last
hours."""

from __future__ import annotations

from coach.analysis.queueing.free_gpus import allocation_map, free_gpus
from coach.model.slurm.cluster import GpuAllocation, Job, Node, is_final
from coach.render.text import Line, line, muted
from coach.sources.slurm.node_sets import expand_nodes
from coach.tui.bases.page import PageScreen
from coach.tui.context import Context
from coach.tui.messages import ExplainWanted, ScreenShown, Wanted
from coach.tui.question import Answer, Question
from coach.tui.render.node_page import Measured, NodeSubject, page_lines
from coach.tui.render.queue import is_own


class NodeScreen(PageScreen, screen="node"):
    """One node. It asks Slurm once which job has which GPU, if any GPU of the node is in use."""

    def __init__(self, context: Context, name: str) -> None:
        super().__init__(context, ("cluster", f"node {name}"))
        self._name = name
        self._jobs_here: tuple[tuple[Job, ...], tuple[Job, ...]] = ((), ())
        """A cache: the queue, and its jobs on this node."""

    def on_mount(self) -> None:
        node = self._node()
        is_recorded = self.context.mode.is_recorded
        if node is not None and node.gpu_indices and not is_recorded:
            self.questions = (Question.ALLOCATIONS,)
            self.post_message(Wanted(Question.ALLOCATIONS))

    def _node(self) -> Node | None:
        return next((node for node in self.context.snapshot.nodes if node.name == self._name), None)

    def show(self) -> None:
        node = self._node()
        if node is not None:
            self._follow_jobs()
            self.pane("#body").set_lines(self._lines(node, self.app.size.width - 2, self.app.size.height - 2))
        elif self.pane("#body").lines:
            self.note("the cluster no longer has this node: this is its last known state")
        else:
            self.pane("#body").set_lines([line(muted(" the cluster has no such node"))])

    def _follow_jobs(self) -> None:
        """Follow the user's running jobs here: only they measure the GPUs."""
        wanted = tuple(
            run.run_id if (run := self.context.run_of_job(job.job_id)) is not None else job.job_id
            for job in self._jobs()
            if job.state == "RUNNING" and is_own(job, self.context.user)
        )
        if wanted != self.targets and not self.context.mode.is_recorded:
            self.targets = wanted
            self.post_message(ScreenShown())

    def _measured(self) -> list[Measured]:
        """The measurements of jobs here that report GPUs."""
        found = []
        for job in self._jobs():
            run = self.context.run_of_job(job.job_id)
            history = self.context.session.history(run.run_id if run is not None else job.job_id)
            if any(node == self._name for node, _ in history.gpus):
                found.append(Measured(job.job_id, history))
        return found

    def _lines(self, node: Node, width: int, height: int) -> list[Line]:
        context = self.context
        answer: Answer[tuple[GpuAllocation, ...]] = context.answers[Question.ALLOCATIONS]
        page = NodeSubject(
            node,
            free_gpus([node], context.snapshot.partitions),
            allocation_map([node], answer.value or ()),
            self._jobs(),
            self._measured(),
            answer if self.questions else None,
            context.answers.node_past,
            "jobs" in context.snapshot.hidden,
            context.now_s,
            context.label,
            context.are_all_shown,
        )
        return page_lines(page, width, height)

    def action_explain(self) -> None:
        self.post_message(ExplainWanted(node=self._node()))

    def _jobs(self) -> tuple[Job, ...]:
        jobs = self.context.snapshot.jobs
        if self._jobs_here[0] is not jobs:
            here = [job for job in jobs if not is_final(job.state) and self._name in expand_nodes(job.nodes)]
            self._jobs_here = (jobs, tuple(here))
        return self._jobs_here[1]
