"""The Recipes screen: the whole ladder, each step with its lesson, its diff, and a form for its parameters.
Enter opens the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Static

from coach.launch.parameters import Parameter, show
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.render.text import Line, line, muted, plural, printable
from coach.tui.bases.list import ListScreen
from coach.tui.context import Context
from coach.tui.messages import LadderOpened, PlanOpened, RecipesWanted, ScriptRequested
from coach.tui.render.recipes import (
    RECIPE_COLUMNS,
    TWO_COLUMNS,
    change_lines,
    diff_lines,
    expected_lines,
    lesson_lines,
    meaning_lines,
    problem_lines,
    recipe_rows,
    side_by_side,
    wrong_words,
)
from coach.tui.widgets.field_list import FieldList
from coach.tui.widgets.filter_line import FilterLine
from coach.tui.widgets.form_field import FormField
from coach.tui.widgets.keyed_table import KeyedTable
from coach.tui.widgets.lines import LinesView
from coach.workflows.launching.recipes import Page

EDIT_PAUSE_S = 0.25
"""The script is made again after typing has paused for this time, in seconds."""
VIEWS = ("lesson", "diff", "expected", "script")
WIDE_VIEWS = ("lesson", "script")
"""The views on a wide terminal, where lesson, diff and expected result stand side by side."""


class ParameterField(FormField):
    """One parameter's value; empty: the default."""

    def __init__(self, launch_name: str, parameter: Parameter, value: str) -> None:
        super().__init__(value, printable(show(parameter.default)), classes="plan-field")
        self.launch_name = launch_name
        self.parameter = parameter
        self.said = value


class RecipesScreen(ListScreen, screen="recipes"):
    """The ladder at the left; the page of the step under the cursor, and its form, at the right."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pages: Sequence[Page] | None = None
        self._problems: tuple[UserError, ...] = ()
        self._view = VIEWS[0]
        self._said: dict[str, dict[str, str]] = {}
        """Launch name → parameter → typed text."""
        self._shown: str | None = None
        """Launch name of the recipe whose form is shown."""
        self._script: tuple[tuple[str, ...], str] | None = None
        self._problem: UserError | None = None
        self.edit = 0
        """The number of requests. A script that was made for an older request is not shown."""

    def compose_body(self) -> Iterator[Widget]:
        with Horizontal(id="steps"):
            yield KeyedTable(RECIPE_COLUMNS, id="ladder", classes="pane")
            with Vertical(id="recipe"):
                yield LinesView(id="page", classes="pane")
                yield FieldList(id="form")
                yield LinesView(id="meaning", can_focus=False)
        yield FilterLine()

    @property
    def focus_chain(self) -> list[Widget]:
        """One Tab leads from the ladder into the form; the page comes after the form's fields."""
        return sorted(super().focus_chain, key=lambda widget: widget.id == "page")

    def on_mount(self) -> None:
        self.query_one("#form").border_title = " parameters · 1,2 or 16..64*2: a run each "
        self.post_message(RecipesWanted())

    @property
    def page(self) -> Page | None:
        """The recipe under the cursor."""
        return next((p for p in self._pages or () if p.launch_name == self.table.cursor_key), None)

    def set_pages(self, pages: Sequence[Page], problems: tuple[UserError, ...]) -> None:
        """Show the recipes that were read."""
        self._pages, self._problems = pages, problems
        self.refresh_all()
        if problems:
            self.note(problems[0].message)

    def set_script(self, diff: tuple[str, ...], script: str, edit: int) -> None:
        if edit == self.edit:
            self._script, self._problem = (diff, script), None
            self.show()

    def refuse(self, error: UserError, edit: int) -> None:
        """Show why no script can be made from the typed values."""
        if edit == self.edit:
            self._problem = error
            self.show()

    def show(self) -> None:
        pages = self._pages
        self.table.set_rows(
            recipe_rows(pages or ()), "reading the recipes…" if pages is None else "no recipe"
        )
        self.table.set_title(
            f"{plural(len(pages), 'recipe')} · {self.context.label('drills')} drills"
            if pages is not None
            else "recipes"
        )
        self.query_one("#ladder").styles.width = self._ladder_width
        self.query_one("#form").set_class(self._is_narrow, "-narrow")
        page = self.page
        if page is None:
            return
        if page.launch_name != self._shown:
            self._shown = page.launch_name
            self._script, self._problem = None, None
            self.call_later(self._show_form, page)
            if self._view == "script":
                self._ask_for_script(0.0)
        view = self.pane("#page")
        words = ("lesson, diff, expected", "script") if self._is_wide else VIEWS
        shown = words[self._views.index(self._view)]
        names = " · ".join(name.upper() if name == shown else name for name in words)
        view.set_title(f"{printable(page.recipe.name)}: {names}")
        view.set_lines(self._lines(page, max(30, view.room.width or 60)))
        self._show_meaning()

    @property
    def _is_wide(self) -> bool:
        return self.pane("#page").room.width >= TWO_COLUMNS

    @property
    def _views(self) -> tuple[str, ...]:
        """The views at this width. If the current view does not exist on a wide terminal, the first one
        replaces it."""
        if not self._is_wide:
            return VIEWS
        self._view = self._view if self._view in WIDE_VIEWS else WIDE_VIEWS[0]
        return WIDE_VIEWS

    def _lines(self, page: Page, width: int) -> Sequence[Line]:
        if self._view == "lesson":
            return side_by_side(page, width) if self._is_wide else lesson_lines(page, width)
        if self._view == "diff":
            return diff_lines(page)
        if self._view == "expected":
            return expected_lines(page, width)
        if self._problem is not None:
            return problem_lines(self._problem)
        if self._script is None:
            return [line(muted(" making the script…"))]
        return change_lines(*self._script)

    async def _show_form(self, page: Page) -> None:
        if page.launch_name != self._shown:
            return
        said = self._said.get(page.launch_name, {})
        form = self.query_one("#form")
        await form.remove_children()
        rows = [
            Horizontal(
                Static(self._label(parameter), classes="plan-label", markup=False),
                ParameterField(page.launch_name, parameter, said.get(name, "")),
                Static(printable(parameter.help), classes="plan-meaning", markup=False),
                classes="parameter-row",
            )
            for name, parameter in page.recipe.parameters.items()
        ]
        await form.mount_all(rows)
        if self.focused is self.pane("#page") and (fields := self.query(ParameterField)):
            self.set_focus(fields.first())  # Tab came before the form

    @staticmethod
    def _label(parameter: Parameter) -> str:
        return f" {printable(parameter.name)}"

    @property
    def _ladder_width(self) -> int:
        """Columns of the list: a recipe's name and its devices."""
        return 30 if self._is_narrow else 36

    @property
    def _is_narrow(self) -> bool:
        """True if the form has no room for a sentence beside each field; the line below it has one."""
        return self.app.size.width < 110

    def _show_meaning(self) -> None:
        field = self.app.focused
        meaning = self.pane("#meaning")
        width = self.app.size.width - self._ladder_width - 2
        if isinstance(field, ParameterField):
            rows = meaning_lines(field.parameter, wrong_words(field.parameter, field.value), max(30, width))
        else:
            rows = [line(muted(f" {self.context.label('pane')} goes into the form: meaning, unit, limits"))]
        meaning.fit_lines(rows)

    def on_descendant_focus(self) -> None:
        self._show_meaning()

    def on_input_changed(self, event: FormField.Changed) -> None:
        if isinstance(event.input, ParameterField) and self._take(event.input):
            self._view, self._problem = "script", None
            self._ask_for_script(EDIT_PAUSE_S)
            self.show()

    def _take(self, field: ParameterField) -> bool:
        """Store the text of a field. Returns False if it was stored already."""
        if field.value == field.said:
            return False
        text = field.said = field.value
        values = self._said.setdefault(field.launch_name, {})
        values.pop(field.parameter.name, None)
        if text.strip():
            values[field.parameter.name] = text.strip()
        return True

    def _ask_for_script(self, after_s: float) -> None:
        self.edit += 1
        self.set_timer(max(after_s, 0.001), lambda edit=self.edit: self._request_script(edit))

    def _request_script(self, edit: int) -> None:
        request = self._request()
        if edit == self.edit and request is not None:
            self.post_message(ScriptRequested(request, edit))

    def _request(self) -> LaunchRequest | None:
        page = self.page
        if page is None:
            return None
        return LaunchRequest(page.launch_name, set=dict(self._said.get(page.launch_name, {})))

    def action_view(self) -> None:
        views = self._views
        self._view = views[(views.index(self._view) + 1) % len(views)]
        if self._view == "script" and self._script is None:
            self._ask_for_script(0.0)
        self.pane("#page").scroll_home(animate=False)
        self.show()

    def action_open(self) -> None:
        for field in self.query(ParameterField):
            self._take(field)
        page, request = self.page, self._request()
        if page is None or request is None:
            return
        self.post_message(PlanOpened(request, page.recipe.name))

    def action_ladder(self) -> None:
        if self.page is not None:
            self.post_message(LadderOpened(self.page.launch_name))

    def on_keyed_table_moved(self) -> None:
        self.pane("#page").scroll_home(animate=False)
        self.show()

    def on_input_submitted(self, event: FormField.Submitted) -> None:
        if isinstance(event.input, ParameterField):
            self.action_open()

    def go_back(self) -> bool:
        if isinstance(self.app.focused, ParameterField):
            self.set_focus(self.table)
            return True
        return super().go_back()
