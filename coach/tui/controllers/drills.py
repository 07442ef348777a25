"""Drills on the screens: the list of them, the short list of one, and what was told of the answer."""

from __future__ import annotations

from functools import partial

from coach.tui import messages
from coach.tui.controllers.questions import AnsweringApp
from coach.workflows.teaching.drill_answer import Judgement


class DrillingApp(AnsweringApp):
    """The part of the app that trains its user."""

    def on_drills_wanted(self, message: messages.DrillsWanted) -> None:
        from coach.tui.screens.drills import DrillsScreen

        screen = message.asked_by
        if not isinstance(screen, DrillsScreen):
            return
        self.desk.do(
            partial(self.launcher.drills, self.backend),
            lambda found: screen.set_drills(*found) if screen.is_attached else None,
            self._say,
        )

    def on_answer_opened(self, message: messages.AnswerOpened) -> None:
        if self._is_overtaken(message):
            return
        from coach.tui.screens.answer import AnswerScreen

        screen = AnswerScreen(self.context, message.run_id)
        self.push_screen(screen)
        self._ask(screen, partial(self.launcher.judgement, message.run_id), screen.set_judgement)

    def on_answer_given(self, message: messages.AnswerGiven) -> None:
        from coach.tui.screens.answer import AnswerScreen

        screen = self._asker(message, AnswerScreen)
        if screen is None:
            return

        def show(judgement: Judgement) -> None:
            self.context.session.refresh_soon()
            if screen.is_attached:
                screen.set_judgement(judgement)

        self._change(screen, partial(self.launcher.answer_drill, message.run_id, message.cause), show)
