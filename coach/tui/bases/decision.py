"""The base of screens that may change something: a question, a guard, and room to show a refusal in full."""

from __future__ import annotations

from coach.model.errors import UserError
from coach.render.text import Line, Span, line, muted
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.key_guard import KeyGuard
from coach.tui.render.error import error_lines

_MAX_ERROR_LINES = 8


class DecisionScreen(CoachScreen):
    """A screen that asks one question. The key that confirms counts only if it arrived after the question was
    painted."""

    def __init__(self, context: Context, crumbs: tuple[str, ...], busy: str) -> None:
        """`busy` is the text shown until the question can be asked."""
        super().__init__(context, crumbs)
        self._guard = KeyGuard()
        self._error: UserError | None = None
        self._busy: str | None = busy
        self._is_asked = False
        """True once the question was shown."""
        self.is_done = False
        """True if the confirmed action ended while another screen lay on top."""

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        if self.is_done:
            self.app.pop_screen()

    @property
    def is_busy(self) -> bool:
        return self._busy is not None

    def ask(self) -> None:
        """The question is complete: arm the guard once it has been painted."""
        self._busy, self._error = None, None
        self._is_asked = True
        self._guard.close()
        self.refresh_all()
        self.call_after_refresh(self.call_after_refresh, self._arm)

    def _arm(self) -> None:
        self._guard.arm(self.context.clock())

    def work(self, text: str) -> None:
        """Show that slow work is under way; no key counts meanwhile."""
        self._busy, self._error = text, None
        self._guard.close()
        self.refresh_all()

    def refuse(self, error: UserError) -> None:
        """Show an error in full."""
        self._busy, self._error = None, error
        self._guard.close()
        self.refresh_all()

    def note_key(self) -> None:
        super().note_key()
        self._guard.press(self.context.key_time_s)

    def admits_key(self) -> bool:
        """True if the key that is being handled may change something. If it came too early, the note says
        so."""
        if self._error is not None or (self.is_busy and self._is_asked):
            return False
        is_early = self.is_busy or not self._guard.admits(self.context.key_time_s)
        if is_early or self.context.typed_on.is_on:
            # Short, so that the keys stay in view. True also of a key within GUARD_S after the question.
            self.note("too early: press it again")
            return False
        return True

    def answer_lines(self, key: str, does: str, width: int) -> list[Line]:
        """The bottom of the question: a refusal, the work under way, or the key that confirms."""
        if self._error is not None:
            rows = error_lines(self._error, width)
            if len(rows) > _MAX_ERROR_LINES:
                rows = rows[:_MAX_ERROR_LINES]
            return [*rows, line(muted(" Esc leaves"))]
        if self._busy is not None:
            return [line(Span(f" {self._busy}", "accent"))]
        return [
            line(
                " ",
                Span(key, "key"),
                Span(f" {does}", "strong"),
                muted(" · "),
                Span("Esc", "key"),
                " leaves with nothing done",
            )
        ]
