"""The controllers' access to the screens: open and close a screen, show a note beside the keys, deliver an
answer.

Controllers get this object, not the app, so that this file shows everything that they can do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from textual.app import App, ScreenStackError

from coach.model.errors import UserError
from coach.tui.bases.decision import DecisionScreen
from coach.tui.bases.screen import CoachScreen
from coach.tui.context import Context
from coach.tui.messages import Done, Request
from coach.tui.screen_specs import HOME, Kind, by_name
from coach.tui.work_progress import Work, WorkProgress
from coach.tui.worker import FINISH_TIMEOUT_S, Worker

T = TypeVar("T")
TOAST_S = 8.0
READ_ONLY = UserError("coach was opened read-only, or on a recording: nothing can be launched or changed")


class Refusing(Protocol):
    """A screen that shows why its work failed."""

    @property
    def is_attached(self) -> bool: ...

    def refuse(self, error: UserError) -> None: ...


class Stage:
    """The stack of screens, and the threads that do work for them."""

    def __init__(self, app: App[None], context: Context) -> None:
        self._app = app
        self.context = context
        self._worker = Worker(self.deliver)
        self._progress = WorkProgress(context.clock)
        self.is_lent = False
        """True while a shell has the terminal: then nothing is drawn."""

    def deliver(self, callback: Callable[[], object]) -> None:
        """Call something in the screens' thread. May be called from any thread."""
        self._app.post_message(Done(callback))

    # Screens

    @property
    def top(self) -> CoachScreen | None:
        """The screen on top, if it is one of ours."""
        try:
            screen = self._app.screen
        except ScreenStackError:  # the clock ticks and data arrive while the last screen is closing
            return None
        return screen if isinstance(screen, CoachScreen) else None

    def open(self, name: str, *arguments: Any) -> Any:
        """Open a screen by its declared name. Returns the screen.

        If it is open already with the same arguments, the screens above it are closed, so that the way back
        has no loops. A screen that asks for confirmation is always new.
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
        """Close a screen that is finished: at once if it is on top (returns True), else when it comes to the
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
        """The screen that made the request, even if others lie on top of it; None if it was closed."""
        screen = request.asked_by
        return screen if isinstance(screen, CoachScreen) and screen.is_attached else None

    def note(self, error: UserError) -> None:
        """Show an error beside the keys of the screen on top."""
        if self.top is not None:
            self.top.note(error.message)

    def may_launch(self) -> bool:
        """True if the mode allows launches; else a note says why not."""
        if not self.context.mode.is_live:
            self.note(READ_ONLY)
        return self.context.mode.is_live

    def copy_by_terminal(self, text: str) -> None:
        """Ask the terminal to put text into its clipboard (OSC 52)."""
        self._app.copy_to_clipboard(text)

    def toast(self, text: str, *, is_bad: bool) -> None:
        """Show a text over the screen on top for some seconds. It receives no keys and no focus."""
        self._app.notify(text, severity="warning" if is_bad else "information", timeout=TOAST_S, markup=False)

    def ring(self) -> None:
        """Ring the terminal's bell."""
        self._app.bell()

    def write_to_terminal(self, sequence: str) -> None:
        """Write a control sequence that paints nothing. Textual has no public method for this."""
        driver = self._app._driver
        if driver is not None and not self._app.is_headless:
            driver.write(sequence)

    def tell(self, words: str) -> None:
        """Show the result of an action, once the screens have been painted."""
        self._app.call_after_refresh(self.note, UserError(words))

    def redraw(self) -> None:
        """Draw the screen on top again."""
        if self.top is not None:
            self.top.refresh_all()

    @contextmanager
    def lent_terminal(self) -> Iterator[None]:
        """Lend the terminal: inside, the screens draw nothing and read no key. Raises SuspendNotSupported if
        the terminal cannot be lent."""
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
        """Run `work` in the worker's thread, after earlier work; then call `on_done` or `on_error` in the
        screens' thread.

        `what` names the work. It is shown once the work has lasted a second; then Esc stops the work, unless
        it changes something.
        """
        self._worker.do(*self._told(work, on_done, on_error, what, is_change), is_change=is_change)

    def do_aside(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], object],
        on_error: Callable[[UserError], object],
        what: str = "",
        *,
        on_stop: Callable[[], object] = lambda: None,
    ) -> None:
        """Run work that changes nothing in a thread of its own, so that it and launches do not wait for each
        other. `on_stop` is called when Esc stops it."""
        worker = Worker(self.deliver)
        worker.do(*self._told(work, on_done, on_error, what, is_kept=False, on_stop=on_stop))
        worker.finish(timeout_s=0.0)  # its thread ends with the answer

    def ask(
        self,
        screen: Refusing,
        work: Callable[[], T],
        show: Callable[[T], object],
        is_wanted: Callable[[], bool] = lambda: True,
        what: str = "",
        *,
        is_aside: bool = False,
    ) -> None:
        """Run work for a screen; its result is shown if the screen is still open. `is_aside`: in a thread of
        its own."""
        do = self.do_aside if is_aside else self.do
        do(
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
        """Run work that changes something. Its result is shown even if its screen was closed meanwhile."""
        if not self.context.mode.is_live:
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
        is_kept: bool,
        on_stop: Callable[[], object] = lambda: None,
    ) -> tuple[Callable[[], T], Callable[[T], object], Callable[[UserError], object]]:
        """The same three functions, with the work shown beside the keys while it lasts. Esc stops it, unless
        it `is_kept`."""
        if not what:
            return work, on_done, on_error
        stopped = UserError(f"stopped: {what}")

        def stop() -> None:
            on_error(stopped)
            on_stop()

        told = self._progress.begin(what, None if is_kept else stop)

        def begin() -> T:
            if told.is_stopped:
                raise stopped
            return work()

        # The returned values may be awaitable, so they are passed on.
        def done(result: T) -> object:
            return on_done(result) if self._end(told) else None

        def failed(error: UserError) -> object:
            return on_error(error) if self._end(told) else None

        return begin, done, failed

    def _end(self, told: Work) -> bool:
        is_waited_for = self._progress.end(told)
        self.tell_progress()
        return is_waited_for

    def tell_progress(self) -> None:
        """Show beside the keys the work that is under way, unless a note stands there."""
        if self.top is not None:
            self.top.show_work(self._progress.words(self.context.label))

    def stop_work(self) -> bool:
        """Stop the work that is shown. Returns False if none is shown, or if it cannot be stopped."""
        is_stopped = self._progress.stop()
        self.tell_progress()
        return is_stopped

    def finish(self, timeout_s: float = FINISH_TIMEOUT_S) -> None:
        """Wait for the work that is under way."""
        self._worker.finish(timeout_s)
