"""What ended a job, and its log with the line of the cause marked: one above the other, or side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.containers import Container

from coach.model.training.log import LogTail
from coach.tui.render.text import Line, printable
from coach.tui.widgets.lines import LinesView
from coach.tui.widgets.log_tail import LogView

WIDE = 110
_MIN_LOG_LINES = 6
"""The log has at least this many lines of a small terminal, its title included."""
_ROWS_AROUND = 2
"""The top line and the keys."""


class CauseAndLog(Container):
    """Lines, and a log where one was read. Without a log the lines have all the room."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tails: Sequence[LogTail] = ()
        self._wanted: str | None = None
        """The file that was asked for by a key."""

    def compose(self) -> ComposeResult:
        yield LinesView(id="body")
        yield LogView(id="log")

    def show(
        self,
        lines_at: Callable[[int], list[Line]],
        tails: Sequence[LogTail],
        place: tuple[str, int] | None,
    ) -> None:
        """`lines_at` makes the lines for a width, `place` is file and line of the cause."""
        self._tails = tails
        width, height = self.app.size
        is_wide = width >= WIDE
        rows = lines_at((width // 2 if is_wide and tails else width) - 2)
        body, log = self.query_one("#body", LinesView), self.query_one("#log", LogView)
        body.set_lines(rows)
        log.display = bool(tails)
        self.styles.layout = "horizontal" if is_wide else "vertical"
        room = max(1, height - _ROWS_AROUND - _MIN_LOG_LINES)
        body.styles.height = "1fr" if is_wide or not tails else min(len(rows), room)
        if tails:
            self._show_log(place)

    def _show_log(self, place: tuple[str, int] | None) -> None:
        def order(tail: LogTail) -> tuple[bool, bool, str]:
            return tail.file != self._wanted, place is None or tail.file != place[0], tail.file

        tail = min(self._tails, key=order)
        marked = place[1] if place is not None and place[0] == tail.file else None
        self.query_one("#log", LogView).set_tail(tail, printable(tail.file.rsplit("/", 1)[-1]), marked)

    def choose(self, stream: str) -> str | None:
        """Show `stdout` or `stderr`. Returns why that changes nothing."""
        if not self._tails:
            return "its log is not read yet"
        wanted = [tail.file for tail in self._tails if _is_stderr(tail.file) == (stream == "stderr")]
        if not wanted or len(self._tails) == 1:
            return "both streams go to this file"
        self._wanted = wanted[0]
        return None


def _is_stderr(file: str) -> bool:
    name = file.rsplit("/", 1)[-1]
    return name.endswith((".err", ".e")) or "stderr" in name
