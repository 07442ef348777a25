"""The Fix screen: the finding, the changed launch as a diff, the choice for the parent. `y` relaunches, once
the screen was painted."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from coach.render.text import Line, short_id
from coach.tui.bases.decision import DecisionScreen
from coach.tui.context import Context
from coach.tui.messages import FixRequested, RelaunchRequested
from coach.tui.ports import PARENT_CHOICES
from coach.tui.render.action import command_lines
from coach.tui.render.fix import change_lines, diff_lines, parent_lines, why_lines
from coach.tui.widgets.lines import LinesView
from coach.workflows.launching.relaunch_offer import RelaunchOffer

_MAKING = "making the changed launch…"
_TRIES = "tries it for a few steps beside this run"


class FixScreen(DecisionScreen, screen="fix"):
    """One fix of one run."""

    def __init__(self, context: Context, run_id: str, index: int) -> None:
        super().__init__(context, ("cluster", f"run {short_id(run_id)}", "fix"), _MAKING)
        self.run_id = run_id
        self.index = index
        self.targets = (run_id,)
        self._offer: RelaunchOffer | None = None
        self._choice = PARENT_CHOICES[0]
        self._is_trial = False

    def compose_body(self) -> Iterator[Widget]:
        yield LinesView(id="why", can_focus=False)
        yield LinesView(id="changes", classes="pane", can_focus=False)
        yield LinesView(id="parent", can_focus=False)
        yield LinesView(id="diff", classes="pane")
        yield LinesView(id="answer", can_focus=False)

    def on_mount(self) -> None:
        self.pane("#changes").set_title("the fix")
        self.pane("#diff").set_title("job.sh · parent → child")
        self.query_one("#diff").focus()

    def set_offer(self, offer: RelaunchOffer) -> None:
        self._offer = offer
        self.ask()

    def show(self) -> None:
        width = self.app.size.width
        offer = self._offer
        for name in ("#why", "#changes", "#parent", "#diff"):
            self.query_one(name).display = offer is not None
        if offer is not None:
            self._draw("#why", why_lines(offer.finding, width))
            self._draw("#changes", change_lines(offer, width), 1)
            self._draw("#parent", parent_lines(offer, self._choice, width, self.context.label))
            commands = command_lines(offer.commands.get(self._choice, ()), width)
            self.pane("#diff").set_lines([*commands, *diff_lines(offer.diff)])
        self._draw(
            "#answer",
            self.answer_lines("y", _TRIES if self._is_trial else "relaunches as a child run", width),
        )

    def _draw(self, name: str, rows: list[Line], more: int = 0) -> None:
        pane = self.pane(name)
        pane.styles.height = max(1, len(rows)) + more
        pane.set_lines(rows)

    def unfit_keys(self) -> frozenset[str]:
        """Those that do nothing after a refusal."""
        if self._error is None:
            return frozenset()
        return frozenset({"confirm", "trial", "parent"} if self._offer is None else {"confirm"})

    def action_next_choice(self) -> None:
        if self._offer is None or not self._offer.is_parent_active or self.is_busy:
            return
        self._choice = PARENT_CHOICES[(PARENT_CHOICES.index(self._choice) + 1) % len(PARENT_CHOICES)]
        self.ask()

    def action_next(self) -> None:
        self._show_fix(self.index + 1)

    def action_previous(self) -> None:
        self._show_fix(self.index - 1)

    def _show_fix(self, index: int) -> None:
        if not self.is_busy:
            self.work(_MAKING)
            self.post_message(FixRequested(self.run_id, index, is_trial=self._is_trial, stays=True))

    def action_toggle_trial(self) -> None:
        if not self.is_busy:
            self._is_trial = not self._is_trial
            self._choice = "keep" if self._is_trial else PARENT_CHOICES[0]
            self.work(_MAKING)
            self.post_message(FixRequested(self.run_id, self.index, is_trial=self._is_trial, stays=True))

    def action_confirm(self) -> None:
        if self._offer is None or not self.admits_key():
            return
        self.work("relaunching…")
        self.post_message(RelaunchRequested(self._offer, self._choice))
