"""The form that submits again the user's job that coach did not launch: time, memory, excluded nodes, and the
exact sbatch line; below, the changes of its script that a finding suggests. `y` submits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Static

from coach.launch.resubmission import Resubmission, submit_again
from coach.model.errors import UserError
from coach.model.slurm.job_action import JobAction
from coach.render.text import BLANK, line, muted
from coach.tui.bases.decision import DecisionScreen
from coach.tui.context import Context
from coach.tui.messages import ActionConfirmed
from coach.tui.render.action import action_lines
from coach.tui.render.foreign_fix import AGAIN_FIELDS, first_values, foreign_fix_lines
from coach.tui.waiting_job import partition_limit_s, why_never_lines
from coach.tui.widgets.form_field import FormField
from coach.tui.widgets.lines import LinesView

if TYPE_CHECKING:
    from coach.workflows.launching.foreign_fix import ForeignFixes


class AgainField(FormField):
    """One option of sbatch."""

    def __init__(self, option: str, value: str) -> None:
        super().__init__(value, "as the script says", classes="plan-field")
        self.option = option


class ForeignFixScreen(DecisionScreen, screen="foreign_fix"):
    """The form. It submits exactly the shown line, and leaves the old job unchanged."""

    def __init__(self, context: Context, job_id: str) -> None:
        super().__init__(context, ("cluster", f"job {job_id}", "fix"), "looking for its batch script…")
        self.targets = (job_id,)
        self._job_id = job_id
        self._again: Resubmission | None = None
        self._action: JobAction | None = None
        self._found: ForeignFixes | None = None
        self._lost: Sequence[str] = ()

    def compose_body(self) -> Iterator[Widget]:
        yield Vertical(id="again")
        yield LinesView(id="body")
        yield LinesView(id="answer", can_focus=False)

    async def set_fixes(
        self, again: Resubmission | UserError, found: ForeignFixes | None, lost: Sequence[str]
    ) -> None:
        """Show the form. `again` is an error if the job's script cannot be found."""
        self._found, self._lost = found if found is not None and found.fixes else None, lost
        if isinstance(again, UserError):
            self.refuse(again)
            self.set_focus(self.query_one("#body"))
            return
        self._again = again
        values = first_values(again, found, partition_limit_s(self.context, self._job_id))
        rows = [
            Horizontal(
                Static(f" {label}", classes="plan-label", markup=False),
                AgainField(option, values[option]),
                Static(meaning, classes="plan-meaning", markup=False),
                classes="parameter-row",
            )
            for option, label, meaning in AGAIN_FIELDS
            if option in values
        ]
        await self.query_one("#again").mount_all(rows)
        self.set_focus(self.query(AgainField).first())
        self._make()

    def _make(self) -> None:
        """Make the sbatch line from the fields."""
        if self._again is None:
            return
        self._action = None
        changes = {field.option: field.value for field in self.query(AgainField)}
        try:
            self._action = submit_again(self._again, changes)
        except UserError as error:
            self.refuse(error)
        else:
            self.ask()

    def on_input_changed(self, event: FormField.Changed) -> None:
        if isinstance(event.input, AgainField) and not self.is_busy:
            self._make()

    def on_input_submitted(self) -> None:
        self.query_one("#body").focus()

    def show(self) -> None:
        width = self.app.size.width
        action, rows = self._action, []
        if action is not None:
            shown = action if self._found is None else replace(action, script=None)  # the diffs show it
            rows = [*why_never_lines(self.context, self._job_id, width - 2), *action_lines(shown, width)]
        if self._found is not None:
            rows = [*rows, BLANK, *foreign_fix_lines(self._found, self._lost, width - 2)]
        self.pane("#body").set_lines(rows)
        if isinstance(self.focused, AgainField) and self._error is None and not self.is_busy:
            answer = [line(muted(" Enter shows the command, where y submits it · Esc leaves"))]
        else:
            answer = self.answer_lines("y", "submits exactly this; the old job stays as it is", width)
        self.pane("#answer").fit_lines(answer)

    def on_descendant_focus(self) -> None:
        if self._again is not None:
            self.show()

    def action_confirm(self) -> None:
        if self._action is None or not self.admits_key():
            return
        self.work("submitting…")
        self.post_message(ActionConfirmed(self._action))
