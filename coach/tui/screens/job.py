"""One job that coach did not launch, or somebody else's: all that the queue says about it."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.tui.base import CoachScreen, Context
from coach.tui.keys import bindings_of
from coach.tui.render.queue import job_lines
from coach.tui.render.text import line, muted
from coach.tui.widgets.lines import LinesView


class JobScreen(CoachScreen):
    """Facts only."""

    PLACE = "job"
    BINDINGS = bindings_of("job")

    def __init__(self, context: Context, job_id: str) -> None:
        super().__init__(context, ("cluster", f"job {job_id}"))
        self._job_id = job_id

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()

    def show(self) -> None:
        job = self.context.job(self._job_id)
        if job is not None:
            self.pane("#body").set_lines(job_lines(job, self.context.now_s))
        elif not self.pane("#body").lines:
            self.pane("#body").set_lines([line(muted(" this job is no longer in the queue"))])
        else:
            self.note("no longer in the queue: this is the last that was seen")
