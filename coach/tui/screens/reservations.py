"""The Reservations screen: which nodes are reserved, when, and for whom."""

from __future__ import annotations

from coach.model.slurm.accounting import Part
from coach.model.slurm.cluster import Reservation
from coach.render.text import Line
from coach.tui.bases.page import PageScreen
from coach.tui.messages import Wanted
from coach.tui.question import Answer, Question
from coach.tui.render.answer import answer_line
from coach.tui.render.reservations import reservation_lines


class ReservationsScreen(PageScreen, screen="reservations"):
    """Slurm is asked when the screen opens, at most once a minute."""

    questions = (Question.RESERVATIONS,)

    def on_mount(self) -> None:
        self.post_message(Wanted(Question.RESERVATIONS))

    def lines(self, width: int) -> list[Line]:
        context, now_s = self.context, self.context.now_s
        answer: Answer[Part[tuple[Reservation, ...]]] = context.answers[Question.RESERVATIONS]
        rows = [answer_line("reservations", answer, now_s, context.label)]
        if answer.value is not None:
            rows += reservation_lines(answer.value, context.user, now_s, width)
        return rows
