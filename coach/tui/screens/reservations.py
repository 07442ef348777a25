"""The Reservations screen: which nodes are reserved, when, and for whom."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.model.slurm.accounting import Part
from coach.model.slurm.cluster import Reservation
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.messages import Wanted
from coach.tui.question import Asked, Question
from coach.tui.render.asked import asked_line
from coach.tui.render.reservations import reservation_lines
from coach.tui.widgets.lines import LinesView


class ReservationsScreen(CoachScreen, screen="reservations"):
    """Slurm is asked when the screen opens, at most once a minute."""

    questions = (Question.RESERVATIONS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context, ("cluster", "reservations"))

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="body")

    def on_mount(self) -> None:
        self.query_one("#body").focus()
        self.post_message(Wanted(Question.RESERVATIONS))

    def show(self) -> None:
        context, now_s = self.context, self.context.now_s
        told: Asked[Part[tuple[Reservation, ...]]] = context.answers[Question.RESERVATIONS]
        rows = [asked_line("reservations", told, now_s, context.label)]
        if told.value is not None:
            rows += reservation_lines(told.value, context.user, now_s, self.app.size.width - 2)
        self.pane("#body").set_lines(rows)
