"""The Stacks screen: the stack of each rank of a running job. For a run of coach they are taken at once, for
another job after `y`."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.model.training.stacks import Stacks, StacksPlan
from coach.render.text import Line, clip, line, muted, printable, strong
from coach.tui.bases.decision import DecisionScreen
from coach.tui.context import Context
from coach.tui.keys import Key
from coach.tui.messages import StacksRequested, StacksWanted
from coach.tui.render.stacks import question_lines, stacks_lines
from coach.tui.widgets.lines import LinesView

_PLANNING = "finding a way into the job…"
_TAKING = "taking the stacks of every rank, fifteen seconds at most…"


class StacksScreen(DecisionScreen, screen="stacks"):
    """The stacks. `S` takes them again: two samples some seconds apart distinguish a slow rank from a hanging
    one."""

    def __init__(self, context: Context, target: str, label: str) -> None:
        super().__init__(context, ("cluster", f"stacks {target}"), _PLANNING)
        self._target = target
        self._label = label
        self._plan: StacksPlan | None = None
        self._stacks: Stacks | None = None

    @property
    def subjects(self) -> tuple[str, ...]:
        run = self.context.run_of_job(self._target)
        return (run.run_id if run is not None else self._target,)

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="heading", can_focus=False)
        yield LinesView(id="body")
        yield LinesView(id="answer", can_focus=False)

    def on_mount(self) -> None:
        self.query_one("#body").focus()
        self.post_message(StacksWanted(self._target))

    def set_plan(self, plan: StacksPlan) -> None:
        self._plan, self._stacks = plan, None
        if plan.must_ask:
            self.ask()
        else:
            self._take(plan)

    def set_stacks(self, stacks: Stacks) -> None:
        self._plan, self._stacks = None, stacks
        self.ask()

    def show(self) -> None:
        width = self.app.size.width
        self.pane("#heading").set_lines([clip(line(strong(" Stacks of "), printable(self._label)), width)])
        rows: list[Line] = []
        if self._stacks is not None:
            rows = stacks_lines(self._stacks, width - 2)
        elif self._plan is not None and self._plan.must_ask:
            rows = question_lines(self._plan, width)
        self.pane("#body").set_lines(rows)
        if self._stacks is not None and not self.is_busy and self._error is None:
            answer = [line(muted(f" {self.context.label('stacks')} takes them again · Esc goes back"))]
        else:
            answer = self.answer_lines("y", "runs exactly this", width)
        self.pane("#answer").fit_lines(answer)

    def reason_off(self, key: Key) -> str | None:
        is_asked = self._plan is not None and self._plan.must_ask
        return super().reason_off(key) if key.id != "confirm" or is_asked else "nothing to confirm"

    def action_confirm(self) -> None:
        if self._plan is not None and self.admits_key():
            self._take(self._plan)

    def action_stacks(self) -> None:
        if self.is_busy or self.is_off("stacks"):
            return
        self.work(_PLANNING)
        self.post_message(StacksWanted(self._target))

    def _take(self, plan: StacksPlan) -> None:
        self.work(_TAKING)
        self.post_message(StacksRequested(plan))
