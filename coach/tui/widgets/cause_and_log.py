"""The cause of a job's end, and below it the log with the line of the cause marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.containers import Container

from coach.model.training.log import LogTail
from coach.render.text import Line
from coach.tui.widgets.lines import LinesView
from coach.tui.widgets.log_tail import LogView

_MIN_LOG_LINES = 3
"""The least number of lines for the log, however long the page above it is."""
_HIGH = 30
_LOG_SHARE = 0.25
"""The log's share of a high terminal."""
_ROWS_AROUND = 2
"""The top line and the keys."""


class CauseAndLog(Container):
    """Lines, and below them a log if one was read. Without a log the lines have all the room."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tails: Sequence[LogTail] = ()
        self.file: str | None = None
        """The shown log file."""
        self._wanted: str | None = None
        """The file that the user chose by a key."""

    def compose(self) -> ComposeResult:
        yield LinesView(id="body")
        yield LogView(id="log")

    def show(
        self,
        lines_at: Callable[[int, int], list[Line]],
        tails: Sequence[LogTail],
        place: tuple[str, int] | None,
        now_s: float | None = None,
    ) -> None:
        """`lines_at` makes the lines for a width and a height; `place` is file and line of the cause; `now_s`
        is the current time in Unix seconds while the job runs, else None."""
        self._tails = tails
        width, height = self.app.size
        body, log = self.query_one("#body", LinesView), self.query_one("#log", LogView)
        log.display = bool(tails)
        self.file = None
        tail = self._tail(place) if tails else None
        room = max(1, height - _ROWS_AROUND - self._log_rows(tail, height))
        rows = lines_at(width - 2, room)
        body.set_lines(rows)
        body.styles.height = min(len(rows), room) if tail is not None else "1fr"
        if tail is not None:
            self.file = tail.file
            self._show_log(tail, place, now_s)

    @staticmethod
    def _log_rows(tail: LogTail | None, height: int) -> int:
        """The least number of lines for the log, with its title."""
        if tail is None:
            return 0
        wanted = int(height * _LOG_SHARE) if height >= _HIGH else _MIN_LOG_LINES
        return 1 + min(max(1, len(tail.lines)), wanted)

    def _tail(self, place: tuple[str, int] | None) -> LogTail:
        """The log that the user chose, else that of the cause, else the standard output."""

        def order(tail: LogTail) -> tuple[bool, bool, bool, str]:
            is_cause = place is not None and tail.file == place[0]
            return tail.file != self._wanted, not is_cause, _is_stderr(tail.file), tail.file

        return min(self._tails, key=order)

    def _show_log(self, tail: LogTail, place: tuple[str, int] | None, now_s: float | None) -> None:
        marked = place[1] if place is not None and place[0] == tail.file else None
        self.query_one("#log", LogView).set_tail(tail, marked, now_s)

    def choose(self, stream: str) -> str | None:
        """Show `stdout` or `stderr`. Returns the reason if that changes nothing, else None."""
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
