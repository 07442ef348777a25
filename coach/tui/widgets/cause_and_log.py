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
_MAX_LOG_LINES = 5
"""Of a small terminal, the log has the room for this many lines, however long the page above it is."""
_ROWS_AROUND = 2
"""The top line and the keys."""


class CauseAndLog(Container):
    """Lines, and a log where one was read. Without a log the lines have all the room."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tails: Sequence[LogTail] = ()
        self.file: str | None = None
        """The log that is shown."""
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
        now_s: float | None = None,
    ) -> None:
        """`lines_at` makes the lines for a width, `place` is file and line of the cause; `now_s` is the time,
        while the job runs."""
        self._tails = tails
        width, height = self.app.size
        is_wide = width >= WIDE
        rows = lines_at((width // 2 if is_wide and tails else width) - 2)
        body, log = self.query_one("#body", LinesView), self.query_one("#log", LogView)
        body.set_lines(rows)
        log.display = bool(tails)
        self.styles.layout = "horizontal" if is_wide else "vertical"
        self.file = None
        if not tails:
            body.styles.height = "1fr"
            return
        tail = self._tail(place)
        self.file = tail.file
        log_rows = 1 + min(max(1, len(tail.lines)), _MAX_LOG_LINES)
        body.styles.height = "1fr" if is_wide else min(len(rows), max(1, height - _ROWS_AROUND - log_rows))
        self._show_log(tail, place, now_s)

    def _tail(self, place: tuple[str, int] | None) -> LogTail:
        """The file that was asked for, else that of the cause, else the standard output."""

        def order(tail: LogTail) -> tuple[bool, bool, bool, str]:
            is_cause = place is not None and tail.file == place[0]
            return tail.file != self._wanted, not is_cause, _is_stderr(tail.file), tail.file

        return min(self._tails, key=order)

    def _show_log(self, tail: LogTail, place: tuple[str, int] | None, now_s: float | None) -> None:
        marked = place[1] if place is not None and place[0] == tail.file else None
        self.query_one("#log", LogView).set_tail(tail, printable(tail.file.rsplit("/", 1)[-1]), marked, now_s)

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
