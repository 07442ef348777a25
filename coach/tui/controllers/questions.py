"""Questions that are asked only when a screen shows their answer, and the screens that show it.

Apart from the actions: nothing here changes anything, so a question waits for no launch, and no launch waits for a question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coach.model.errors import UserError
from coach.tui import messages
from coach.tui.controllers.job_actions import ActingApp
from coach.tui.mode import Mode
from coach.tui.question import Asked, Question
from coach.tui.worker import Worker

_OF_SLURM = (Question.PLACE_IN_QUEUE, Question.ALLOCATIONS, Question.STEP_USE)


class AnsweringApp(ActingApp):
    """The part of the app that asks on demand."""

    def on_wanted(self, message: messages.Wanted) -> None:
        context, question = self.context, message.question
        known = context.answers[question]
        if known.is_under_way or (not message.is_anew and known.is_fresh(context.now_s)):
            return
        if context.mode in (Mode.REPLAY, Mode.DEMO):
            self._answer(question, Asked(None, "this is a recording: it does not hold this", context.now_s))
            return
        if self.backend == "local" and question in _OF_SLURM:
            self._answer(question, Asked(None, "this machine has no queue", context.now_s))
            return
        self._answer(question, Asked(known.value, None, known.time_s, is_under_way=True))
        desk = Worker(lambda callback: self.post_message(messages.Done(callback)))
        desk.do(
            self._work(question),
            lambda value: self._answer(question, Asked(value, None, context.now_s)),
            lambda error: self._answer(
                question, Asked(known.value, _said(error), known.time_s, failed_s=context.now_s)
            ),
        )
        desk.finish(timeout_s=0.0)  # its thread ends with the answer

    def _work(self, question: Question) -> Callable[[], Any]:
        launcher = self.launcher
        if question is Question.PLACE_IN_QUEUE:
            return launcher.place_in_queue
        if question is Question.ALLOCATIONS:
            return launcher.allocations
        if question is Question.STEP_USE:
            return launcher.step_use
        if question is Question.COHORT:
            return launcher.cohort
        return lambda: launcher.past_jobs(self.backend)

    def _answer(self, question: Question, asked: Asked[Any]) -> None:
        self.context.answers.by_question[question] = asked
        if self.top is not None and question in self.top.questions:
            self.top.refresh_all()

    def on_node_opened(self, message: messages.NodeOpened) -> None:
        if self._is_overtaken(message):
            return
        from coach.tui.screens.node import NodeScreen

        self.push_screen(NodeScreen(self.context, message.name))

    def on_past_job_opened(self, message: messages.PastJobOpened) -> None:
        if self._is_overtaken(message):
            return
        from coach.tui.screens.job import JobScreen

        self.push_screen(JobScreen(self.context, message.past.job.job_id, message.past))


def _said(error: UserError) -> str:
    return error.message if error.hint is None else f"{error.message} ({error.hint})"
