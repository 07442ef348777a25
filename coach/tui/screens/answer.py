"""The answer screen of a drill: the learner chooses a cause, and gets the evidence against it, or the proof
and the lesson."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.model.launching.launch import LaunchRequest
from coach.render.text import line, muted, short_id
from coach.tui.bases.decision import DecisionScreen
from coach.tui.context import Context
from coach.tui.keys import Key
from coach.tui.messages import AnswerGiven, JudgementWanted, PlanOpened
from coach.tui.render.drills import CHOICE_COLUMNS, GIVE_UP, choice_rows, judgement_lines
from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.lines import LinesView
from coach.workflows.teaching.drill_answer import Judgement

_LOOKING = "looking at the run…"


class AnswerScreen(DecisionScreen, screen="answer"):
    """Causes above, the response below. The list of causes disappears once the drill is solved, given up or
    spoiled."""

    def __init__(self, context: Context, run_id: str) -> None:
        super().__init__(context, ("cluster", f"run {short_id(run_id)}", "answer"), _LOOKING)
        self.run_id = run_id
        self.targets = (run_id,)
        self._judgement: Judgement | None = None

    def compose_body(self) -> Iterator[Widget]:
        yield KeyedTable(CHOICE_COLUMNS, id="choices")
        yield LinesView(id="body")
        yield LinesView(id="answer", can_focus=False)

    def on_mount(self) -> None:
        self.query_one("#choices").focus()
        self.post_message(JudgementWanted(self.run_id))

    def set_judgement(self, judgement: Judgement) -> None:
        self._judgement = judgement
        self.query_one("#choices", KeyedTable).set_rows(choice_rows(judgement))
        self.ask()

    @property
    def _is_settled(self) -> bool:
        return self._judgement is not None and self._judgement.planted is not None

    @property
    def _is_spoiled(self) -> bool:
        return self._judgement is not None and bool(self._judgement.spoiled) and not self._is_settled

    def show(self) -> None:
        judgement, width = self._judgement, self.app.size.width
        choices = self.query_one("#choices", KeyedTable)
        has_response = self._is_settled or self._is_spoiled
        choices.display = not has_response
        choices.styles.height = 1 + choices.num_rows
        if has_response and self.focused is not self.query_one("#body"):
            self.query_one("#body").focus()
        self.pane("#body").set_lines(judgement_lines(judgement, width - 2) if judgement is not None else [])
        if self._is_settled and not self.is_busy:
            answer = [line(muted(" Esc goes back"))]
        else:
            wanted = "launches it again: no answer counts" if self._is_spoiled else "names this cause"
            answer = self.answer_lines("Enter", wanted, width)
        self.pane("#answer").fit_lines(answer)

    def reason_off(self, key: Key) -> str | None:
        return super().reason_off(key) if key.id != "choose" or not self._is_settled else "it is settled"

    def action_choose(self) -> None:
        cause = self.query_one("#choices", KeyedTable).cursor_key
        if cause is None or self.is_off("choose") or not self.admits_key():
            return
        if self._judgement is not None and self._is_spoiled:
            self.post_message(PlanOpened(LaunchRequest(self._judgement.drill), self._judgement.drill))
            return
        self.work(_LOOKING)
        self.post_message(AnswerGiven(self.run_id, None if cause == GIVE_UP else cause))

    def on_keyed_table_opened(self) -> None:
        self.action_choose()
