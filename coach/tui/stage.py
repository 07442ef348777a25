"""What controllers may do with the screens: open and close one, say something beside the keys, bring an
answer back.

Controllers are given this instead of the app, so that what one of them can do is seen here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from textual.app import App, ScreenStackError

from coach.model.errors import UserError
from coach.tui.bases.decision import DecisionScreen
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.messages import Done, Request
from coach.tui.mode import Mode
from coach.tui.screen_specs import HOME, Kind, by_name
from coach.tui.work_progress import Work, WorkProgress
from coach.tui.worker import FINISH_TIMEOUT_S, Worker

T = TypeVar("T")
TOAST_S = 8.0
READ_ONLY = UserError("coach was opened read-only, or on a recording: nothing can be launched or changed")


class Stage:
    """The stack of screens, and the thread that works for them."""

    def __init__(self, app: App[None], context: Context) -> None:
        self._app = app
        self.context = context
        self._worker = Worker(self.deliver)
        self._progress = WorkProgress(context.clock)
        self._is_progress_told = False
        self.is_lent = False
        """True while a shell has the terminal: then nothing is drawn."""

    def deliver(self, callback: Callable[[], object]) -> None:
        """Have something called in the screens' thread."""
        self._app.post_message(Done(callback))

    # Screens

    @property
    def top(self) -> CoachScreen | None:
        """The screen on top, if it is one of ours."""
        try:
            screen = self._app.screen
        except ScreenStackError:  # the clock ticks and data arrive also while the last screen closes
            return None
        return screen if isinstance(screen, CoachScreen) else None

    def open(self, name: str, *arguments: Any) -> Any:
        """Open a screen by the name it is declared with. Returns the screen.

        One that is open already with the same arguments comes to the top, and what lies on it is closed: the
        way back never goes in circles. A screen that asks is always new.
        """
        spec = by_name()[name]
        stack = self._app.screen_stack
        for screen in stack if Kind.ASK not in spec.kinds else ():
            if isinstance(screen, CoachScreen) and screen.opened_as == (name, arguments):
                while self._app.screen is not screen:
                    self._app.pop_screen()
                return screen
        screen = spec.load()(self.context, *arguments)
        screen.opened_as = (name, arguments)
        self._app.push_screen(screen)
        return screen

    def go_home(self) -> None:
        """Close every screen but the first."""
        while self.top is not None and self.top.spec is not HOME:
            self._app.pop_screen()

    def close(self, screen: CoachScreen) -> bool:
        """Close a screen that is done with: at once if it is on top (returns True), else when it comes to the
        top."""
        if self._app.screen is screen:
            self._app.pop_screen()
            return True
        if isinstance(screen, DecisionScreen):
            screen.is_done = True
        return False

    def is_overtaken(self, request: Request) -> bool:
        """True if another screen has opened since the key was pressed: in one packet, `x⏎⏎⏎` asks once and
        opens nothing."""
        return request.asked_by is not self._app.screen

    def asker(self, request: Request) -> Any:
        """The screen that asked, under whatever lies on top of it, as long as it stands; else None."""
        screen = request.asked_by
        return screen if isinstance(screen, CoachScreen) and screen.is_attached else None

    def note(self, error: UserError) -> None:
        """Say beside the keys of the screen on top what went wrong."""
        if self.top is not None:
            self.top.note(error.message)

    def copy_by_terminal(self, text: str) -> None:
        """Ask the terminal to put text into its clipboard (OSC 52)."""
        self._app.copy_to_clipboard(text)

    def toast(self, text: str, *, is_bad: bool) -> None:
        """Show a text over the screen on top for some seconds. It takes neither key nor focus."""
        self._app.notify(text, severity="warning" if is_bad else "information", timeout=TOAST_S, markup=False)

    def ring(self) -> None:
        """The terminal's bell."""
        self._app.bell()

    def write_to_terminal(self, sequence: str) -> None:
        """A sequence that paints nothing. Textual has no public way for it."""
        driver = self._app._driver
        if driver is not None and not self._app.is_headless:
            driver.write(sequence)

    def tell(self, words: str) -> None:
        """Say what came of something, once the screens have been painted."""
        self._app.call_after_refresh(self.note, UserError(words))

    def redraw(self) -> None:
        """Draw the screen on top again."""
        if self.top is not None:
            self.top.refresh_all()

    @contextmanager
    def lent_terminal(self) -> Iterator[None]:
        """Nothing is drawn and no key is read inside. Raises SuspendNotSupported where the terminal cannot be
        lent."""
        self.is_lent = True
        try:
            with self._app.suspend():
                yield
        finally:
            self.is_lent = False

    # Work

    def do(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], object],
        on_error: Callable[[UserError], object],
        what: str = "",
        *,
        is_change: bool = False,
    ) -> None:
        """Work in the worker's thread, one thing after the other; then call one of the two here.

        `what` tells it where it lasts a second; then Esc stops it, unless it changes something.
        """
        self._worker.do(*self._told(work, on_done, on_error, what, is_change), is_change=is_change)

    def do_aside(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], object],
        on_error: Callable[[UserError], object],
        what: str = "",
    ) -> None:
        """Work in a thread of its own, which changes nothing: it waits for no launch, and no launch waits for
        it."""
        worker = Worker(self.deliver)
        worker.do(*self._told(work, on_done, on_error, what, False))
        worker.finish(timeout_s=0.0)  # its thread ends with the answer

    def ask(
        self,
        screen: DecisionScreen,
        work: Callable[[], T],
        show: Callable[[T], object],
        is_wanted: Callable[[], bool] = lambda: True,
        what: str = "",
    ) -> None:
        """Work for a question: its answer is shown if the screen still stands."""
        self.do(
            work,
            lambda result: show(result) if screen.is_attached and is_wanted() else None,
            lambda error: screen.refuse(error) if screen.is_attached and is_wanted() else None,
            what,
        )

    def change(
        self,
        screen: DecisionScreen,
        work: Callable[[], T],
        on_done: Callable[[T], object],
        what: str = "",
    ) -> None:
        """Work that changes something. What came of it is told, even when its screen was left meanwhile."""
        if self.context.mode is not Mode.LIVE:
            screen.refuse(READ_ONLY)
            return
        self.do(
            work,
            on_done,
            lambda error: screen.refuse(error) if screen.is_attached else self.note(error),
            what,
            is_change=True,
        )

    def _told(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], object],
        on_error: Callable[[UserError], object],
        what: str,
        is_change: bool,
    ) -> tuple[Callable[[], T], Callable[[T], object], Callable[[UserError], object]]:
        """The same, told while it lasts."""
        if not what:
            return work, on_done, on_error
        stopped = UserError(f"stopped: {what}")
        told = self._progress.begin(what, None if is_change else lambda: on_error(stopped))

        def begin() -> T:
            if told.is_stopped:
                raise stopped
            return work()

        def done(result: T) -> None:
            if self._end(told):
                on_done(result)

        def failed(error: UserError) -> None:
            if self._end(told):
                on_error(error)

        return begin, done, failed

    def _end(self, told: Work) -> bool:
        is_waited_for = self._progress.end(told)
        self.tell_progress()
        return is_waited_for

    def tell_progress(self) -> None:
        """Say what goes on beside the keys, and no longer once it has ended."""
        words = self._progress.words(self.context.label)
        if self.top is not None and (words or self._is_progress_told):
            self.top.note(words)
        self._is_progress_told = bool(words)

    def stop_work(self) -> bool:
        """Stop what is told. False: nothing is, or it cannot be stopped."""
        is_stopped = self._progress.stop()
        if is_stopped:
            self._is_progress_told = False
        return is_stopped

    def finish(self, timeout_s: float = FINISH_TIMEOUT_S) -> None:
        """Let the work that is under way come to its end."""
        self._worker.finish(timeout_s)
