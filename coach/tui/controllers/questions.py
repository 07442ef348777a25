"""Questions that are asked only when a screen shows their answer, and the report of the doctor.

Questions change nothing, so questions and launches do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from coach.late import late
from coach.model.errors import UserError
from coach.tui import messages
from coach.tui.controllers.handlers import Handlers
from coach.tui.ports import RuleTitle
from coach.tui.question import Answer, Question
from coach.tui.stage import Stage

if TYPE_CHECKING:
    from coach.tui.controllers import explanations
    from coach.tui.live_ports import LiveQuestions
    from coach.tui.screens.doctor import DoctorScreen
    from coach.tui.screens.rule import RuleScreen
else:
    explanations = late("coach.tui.controllers", "explanations")

_OF_SLURM = (
    Question.PLACE_IN_QUEUE,
    Question.RESERVATIONS,
    Question.ALLOCATIONS,
    Question.STEP_USE,
    Question.REMEMBERED,
)

_WORDS = {
    Question.PAST_JOBS: "asking for the jobs that have ended",
    Question.COHORT: "reading the runs of the course",
}
"""Names of questions that may take long and that a screen waits for; the first Esc stops one. Other questions
show their state beside their answer."""


class Questions:
    """Asks the questions, and keeps the answers in the context for all screens."""

    def __init__(self, stage: Stage, questions: LiveQuestions, backend: str) -> None:
        self._stage = stage
        self._port = questions
        self._has_queue = backend != "local"
        self._rule_titles: tuple[RuleTitle, ...] = ()

    @property
    def handlers(self) -> Handlers:
        return {
            messages.Wanted: self._ask,
            messages.RememberedWanted: lambda message: self.remember(),
            messages.ReportWanted: self._examine,
            messages.RuleWanted: self._explain,
            messages.ExplainWanted: lambda message: explanations.explain(self._stage, message),
        }

    def remember(self) -> None:
        """Read the ended jobs from coach's memory again, if the last answer is old."""
        self._ask(messages.Wanted(Question.REMEMBERED))

    def _ask(self, message: messages.Wanted) -> None:
        context, question = self._stage.context, message.question
        known = context.answers[question]
        if known.is_under_way or (not message.is_anew and known.is_fresh(context.now_s)):
            return
        if context.mode.is_recorded:
            self._keep(question, Answer(None, "this is a recording: it does not hold this", context.now_s))
            return
        if question in _OF_SLURM and not self._has_queue:
            self._keep(question, Answer(None, "this machine has no queue", context.now_s))
            return
        self._keep(question, Answer(known.value, None, known.time_s, is_under_way=True))
        self._stage.do_aside(
            partial(self._port.answer, question),
            lambda value: self._keep(question, Answer(value, None, context.now_s)),
            lambda error: self._keep(
                question, Answer(known.value, _whole(error), known.time_s, failed_s=context.now_s)
            ),
            _WORDS.get(question, ""),
            on_stop=partial(self._stop, question),
        )

    def _stop(self, question: Question) -> None:
        """End the question's commands. The next screen that needs the answer asks again at once."""
        self._port.stop(question)
        answer = self._stage.context.answers[question]
        self._keep(question, replace(answer, failed_s=None))
        self._stage.note(UserError(answer.error or ""))

    def _keep(self, question: Question, answer: Answer[Any]) -> None:
        self._stage.context.answers.by_question[question] = answer
        if question is Question.REMEMBERED:
            self._stage.context.use_kept_verdicts()
        if self._stage.top is not None and question in self._stage.top.questions:
            self._stage.redraw()

    def _examine(self, message: messages.ReportWanted) -> None:
        screen: DoctorScreen | None = self._stage.asker(message)
        if screen is not None:
            self._stage.ask(
                screen, self._port.examine, screen.set_report, what="checking this machine", is_aside=True
            )

    def _explain(self, message: messages.RuleWanted) -> None:
        screen: RuleScreen | None = self._stage.asker(message)
        if screen is not None:
            work = partial(self._port.explain_rule, message.code)
            self._stage.ask(screen, work, screen.set_text, is_aside=True)

    def name_rules(self, tell: Callable[[tuple[RuleTitle, ...]], object]) -> None:
        """Pass all rules by code and title to `tell`. The first call reads them in a thread."""
        if self._rule_titles:
            tell(self._rule_titles)
            return

        def keep(titles: tuple[RuleTitle, ...]) -> None:
            self._rule_titles = titles
            tell(titles)

        self._stage.do_aside(self._port.rule_titles, keep, self._stage.note)


def _whole(error: UserError) -> str:
    return error.message if error.hint is None else f"{error.message} ({error.hint})"
