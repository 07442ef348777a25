"""Drills: the list of drills, the learner's progress in one, and the judged answer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coach.tui import messages
from coach.tui.controllers.handlers import Handlers
from coach.tui.stage import Stage

if TYPE_CHECKING:
    from coach.tui.live_ports import LiveDrills
    from coach.tui.screens.answer import AnswerScreen
    from coach.tui.screens.drills import DrillsScreen
    from coach.workflows.teaching.drill_answer import Judgement


class Drills:
    """Handles the requests of the Drills screen and of the answer screen."""

    def __init__(self, stage: Stage, drills: LiveDrills) -> None:
        self._stage = stage
        self._port = drills

    @property
    def handlers(self) -> Handlers:
        return {
            messages.DrillsWanted: self._read,
            messages.JudgementWanted: self._read_judgement,
            messages.AnswerGiven: self._judge,
        }

    def _read(self, message: messages.DrillsWanted) -> None:
        screen: DrillsScreen | None = self._stage.asker(message)
        if screen is None:
            return
        self._stage.do(
            self._port.drills,
            lambda found: screen.set_drills(*found) if screen.is_attached else None,
            self._stage.note,
            "reading the drills",
        )

    def _read_judgement(self, message: messages.JudgementWanted) -> None:
        screen: AnswerScreen | None = self._stage.asker(message)
        if screen is not None:
            self._stage.ask(
                screen,
                partial(self._port.judgement, message.run_id),
                screen.set_judgement,
                what="checking the run",
            )

    def _judge(self, message: messages.AnswerGiven) -> None:
        screen: AnswerScreen | None = self._stage.asker(message)
        if screen is None:
            return

        def show(judgement: Judgement) -> None:
            self._stage.context.session.refresh_soon()
            if screen.is_attached:
                screen.set_judgement(judgement)

        self._stage.change(
            screen,
            partial(self._port.answer_drill, message.run_id, message.cause),
            show,
            "checking the answer",
        )
