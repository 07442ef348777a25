"""The Plan screen: the resources to request, the decisions of coach, the exact script. Enter submits, once
the screen was painted."""

from __future__ import annotations

from collections.abc import Iterator

from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from coach.launch.refusal import Choice, Refused, field_named
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest, Plan
from coach.render.text import line, muted
from coach.tui.bases.decision import DecisionScreen
from coach.tui.context import Context
from coach.tui.messages import PlanRequested, SubmitRequested
from coach.tui.render.plan import (
    LOCKED,
    REFUSED,
    Field,
    answered,
    draft_fields,
    edited,
    in_words_of_the_form,
    plan_fields,
    plan_heading,
    plan_notes,
    refusal_lines,
    script_lines,
    what_is_submitted,
)
from coach.tui.widgets.field_list import FieldList
from coach.tui.widgets.form_field import FormField
from coach.tui.widgets.lines import LinesView

EDIT_PAUSE_S = 0.25
"""The plan is made again after typing has paused for this time, in seconds."""

_MAX_ANSWER_LINES = 9
SEVERAL = " plan · several values of a parameter, as 1,2 or 16..64*2: a run each "
"""The title of the fields."""


class PlanField(FormField):
    """One value of the plan."""

    class Picked(Message):
        """The user pressed the digit of a choice."""

        def __init__(self, choice: Choice) -> None:
            super().__init__()
            self.choice = choice

    def __init__(self, field: Field) -> None:
        super().__init__(field.value, field.value, classes="plan-field", disabled=field.lock is not None)
        self.field = field
        self.said = field.value
        """The text of the last request for a plan. Typing a character and deleting it counts as two edits."""
        self.choices: tuple[Choice, ...] = ()
        """The choices of a refusal. While it is shown, a digit picks one."""

    def show(self, field: Field) -> None:
        """Show the plan's value, unless the user is editing the field."""
        self.field = field
        self.placeholder = field.value
        self.disabled = field.lock is not None
        if self.is_said and self.screen.focused is not self and self.value != field.value:
            self.put(field.value)

    def put(self, text: str) -> None:
        """Set a value that the user did not type."""
        self.said = text
        with self.prevent(FormField.Changed):
            self.value = text

    @property
    def is_said(self) -> bool:
        """True if the last plan was requested with the shown text."""
        return self.value == self.said

    def on_blur(self) -> None:
        if not self.value and self.screen.focused is not self:
            self.put(self.field.value)

    def takes(self, character: str) -> bool:
        number = "123456789".find(character)
        if not 0 <= number < len(self.choices):
            return False
        self.post_message(self.Picked(self.choices[number]))
        return True


class PlanRow(Horizontal):
    """A field with its label and its meaning. The first column shows a sign if the field is locked or
    refused."""

    def __init__(self, field: Field) -> None:
        self.label = Static(classes="plan-label", markup=False)
        self.input = PlanField(field)
        self.meaning = Static(field.meaning, classes="plan-meaning", markup=False)
        super().__init__(self.label, self.input, self.meaning)
        self.mark()

    def show(self, field: Field) -> None:
        """Show the field as in the newest plan."""
        if field.meaning != self.input.field.meaning:
            self.meaning.update(field.meaning)
        self.input.show(field)
        self.mark()

    def mark(self, *, is_refused: bool = False, choices: tuple[Choice, ...] = ()) -> None:
        field = self.input.field
        sign = REFUSED if is_refused else LOCKED if field.lock is not None else " "
        self.label.update(f"{sign}{field.label}")
        self.set_class(is_refused, "-refused")
        self.input.choices = choices


class PlanScreen(DecisionScreen, screen="plan"):
    """The form of a plan. Every edit makes the plan again; exactly the shown plan is submitted."""

    def __init__(self, context: Context, title: str) -> None:
        super().__init__(context, ("cluster", title), "making the plan…")
        self.plan: Plan | None = None
        self._request: LaunchRequest | None = None
        self._edit = 0

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="heading", can_focus=False)
        with Vertical(id="plan"):
            yield FieldList(id="fields")
            yield LinesView(id="notes", classes="pane")
            yield LinesView(id="script", classes="pane")
        yield LinesView(id="answer", can_focus=False)

    def on_mount(self) -> None:
        self.query_one("#fields").border_title = SEVERAL
        self.pane("#notes").set_title("decided")
        self.query_one("#plan").display = False

    @property
    def edit(self) -> int:
        """The number of edits. A plan that was made for an older edit is not shown."""
        return self._edit

    async def set_first(self, made: Plan | UserError, request: LaunchRequest) -> None:
        """Show the first plan, or why none can be made from the request, which the user can edit."""
        self._request = request
        if isinstance(made, UserError):
            self.refuse(made)
        else:
            await self.set_plan(made, request, 0)

    async def set_plan(self, plan: Plan, request: LaunchRequest, edit: int) -> None:
        if edit != self._edit:
            return
        self.plan, self._request = plan, request
        await self._show_fields(plan)
        self.ask()

    def refuse(self, error: UserError) -> None:
        super().refuse(in_words_of_the_form(error))
        for field in self.query(PlanField):
            field.is_held = False
        if not self.query(PlanField):
            self._show_draft(error)
        self.query_one("#plan").display = len(self.query(PlanRow)) > 0
        row = self._refused_row()
        if isinstance(error, Refused) and row is not None:
            row.mark(is_refused=True, choices=error.choices)
            row.input.focus()

    def _show_draft(self, error: UserError) -> None:
        """Show the fields of the draft, because no plan could be made from it. The focus goes to the field
        that the refusal names."""
        if self._request is None:
            return
        rows = [PlanRow(field) for field in draft_fields(self._request)]
        self.query_one("#fields").mount_all(rows)
        self.query_one("#plan").display = True
        named = error.field if isinstance(error, Refused) else field_named(error)
        marked = next((row for row in rows if row.input.field.name == named), None)
        if marked is not None:
            marked.mark(is_refused=True)
        self.call_after_refresh((marked or rows[0]).input.focus)

    def _refused_row(self) -> PlanRow | None:
        """The row of the field that Slurm's refusal names."""
        name = self._error.field if isinstance(self._error, Refused) else None
        rows = (row for row in self.query(PlanRow) if row.input.field.name == name)
        return next((row for row in rows if row.input.field.lock is None), None)

    def _forget_refusal(self) -> None:
        for row in self.query(PlanRow):
            row.mark()

    async def _show_fields(self, plan: Plan) -> None:
        fields = plan_fields(plan)
        shown = {row.input.field.name: row for row in self.query(PlanRow)}
        if tuple(shown) != tuple(field.name for field in fields):
            await self._replace_fields(fields)
            return
        for field in fields:
            shown[field.name].show(field)

    async def _replace_fields(self, fields: tuple[Field, ...]) -> None:
        """Replace the fields. Fields that stay keep their place, their text and the focus, so that the form
        is never blank."""
        holder, names = self.query_one("#fields"), {field.name for field in fields}
        is_first = not self.query(PlanRow)
        for row in self.query(PlanRow):
            if row.input.field.name not in names:
                await row.remove()
        shown = {row.input.field.name: row for row in self.query(PlanRow)}
        if is_first:
            await holder.mount_all([PlanRow(field) for field in fields])
        for index, field in enumerate(() if is_first else fields):
            if field.name in shown:
                shown[field.name].show(field)
            else:
                await holder.mount(PlanRow(field), before=index if index < len(holder.children) else None)
        self.query_one("#plan").display = True
        if is_first:
            self._focus_first()

    def _focus_first(self) -> None:
        """Focus the first field that the user can edit."""
        first = next((field for field in self.query(PlanField) if not field.disabled), None)
        if first is not None:
            self.set_focus(first)

    def show(self) -> None:
        width, height = self.app.size
        plan = self.plan
        if plan is not None:
            self.pane("#heading").set_lines([plan_heading(plan, width)])
            notes = plan_notes(plan, width - 1)
            self.pane("#notes").styles.height = 1 + min(max(1, len(notes)), max(2, height // 6))
            self.pane("#notes").set_lines(notes or [line(muted(" nothing unusual"))])
            name = "job.sh of the first run" if plan.others else "job.sh"
            self.pane("#script").set_title(f"{name} · making it again…" if self.is_busy else name)
            self.pane("#script").set_lines(script_lines(plan.script, is_stale=self.is_busy))
        self.pane("#notes").display = self.pane("#script").display = plan is not None
        if isinstance(self._error, Refused):
            row = self._refused_row()
            label = row.input.field.label if row is not None else None
            rows = refusal_lines(self._error, label, width, _MAX_ANSWER_LINES)
        else:
            rows = self.answer_lines("Enter", what_is_submitted(plan), width)
        self.pane("#answer").fit_lines(rows)

    def on_descendant_focus(self) -> None:
        """Show the meaning of the focused field in full."""
        for row in self.query(PlanRow):
            if row.input is self.focused:
                self.call_after_refresh(row.scroll_visible, animate=False)

    def on_input_changed(self, event: FormField.Changed) -> None:
        if self._request is None or not isinstance(event.input, PlanField):
            return
        if event.input.is_said:
            return
        text = event.input.said = event.input.value
        self._forget_refusal()
        self._edit += 1
        try:
            self._request = edited(self._request, event.input.field.name, text)
        except UserError as error:
            self.refuse(error)
            return
        self.work("making the plan again…")
        self.set_timer(EDIT_PAUSE_S, lambda edit=self._edit: self._prepare_again(edit))

    def on_plan_field_picked(self, message: PlanField.Picked) -> None:
        if self._request is None:
            return
        self._forget_refusal()
        self._edit += 1
        self._request = answered(self._request, message.choice)
        for field in self.query(PlanField):
            if field.field.name in message.choice.changes:
                field.put(message.choice.changes[field.field.name])
        self.work("making the plan again…")
        self._prepare_again(self._edit)

    def _prepare_again(self, edit: int) -> None:
        if edit == self._edit and self._request is not None:
            self.post_message(PlanRequested(self._request, edit))

    def action_submit(self) -> None:
        fields = self.query(PlanField)
        if self.plan is None or not self.admits_key() or not all(field.is_said for field in fields):
            return
        for field in fields:
            field.is_held = True
        self.work("submitting…")
        self.post_message(SubmitRequested(self.plan))
