"""A pane for the end of a log. It follows the log while the end is in sight, and stands still after the user
scrolls up."""

from __future__ import annotations

from coach.model.training.log import LogTail
from coach.render.text import Line, Span, age, line, muted, printable
from coach.tui.widgets.lines import LinesView

SILENT_S = 60.0
"""After this time without output, in seconds, the pane says so: the training may hang, or only print
seldom."""


class LogView(LinesView):
    """Shows one log's tail."""

    DEFAULT_CLASSES = "pane"
    _file: str | None = None
    _marked: int | None = None

    def set_tail(self, tail: LogTail, marked: int | None, now_s: float | None) -> None:
        """`marked` is the number of the line that proves the cause. The pane scrolls to it once.

        `now_s` is the current time in Unix seconds while the job runs, to show how long the log has been
        silent.
        """
        is_at_end = tail.file != self._file or self.scroll_offset.y >= self.max_scroll_y
        self._file = tail.file
        name = printable(tail.file.rsplit("/", 1)[-1])
        if tail.is_binary:
            self.set_title(f"{name} · binary")
            self.set_lines([line(muted(f" {tail.size_bytes:,} bytes that are not text"))])
            return
        size = (
            f"{tail.num_lines:,} line{'' if tail.num_lines == 1 else 's'}"
            if tail.is_counted
            else "its end, the rest is being read"
        )
        self.set_title(f"{name} · {size}{_silence(tail, now_s)}")
        index = marked - tail.first_line if marked is not None and tail.is_counted else None
        self.set_lines([_line(text, at == index) for at, text in enumerate(tail.lines)])
        is_new, self._marked = marked != self._marked, marked
        if index is not None and is_new and 0 <= index < len(tail.lines):
            self.call_after_refresh(self._show_line, index)
        elif is_at_end:
            self.call_after_refresh(self.scroll_end, animate=False, immediate=True)

    def _show_line(self, index: int) -> None:
        """Scroll to a line, with as many of the lines below it as fit."""
        first = min(index, max(0, len(self.lines) - self.room.height))
        self.scroll_to(y=first, animate=False, immediate=True)


def _silence(tail: LogTail, now_s: float | None) -> str:
    if now_s is None or tail.written_s is None or now_s - tail.written_s < SILENT_S:
        return ""
    return f" · silent for {age(now_s - tail.written_s)}"


def _line(text: str, is_marked: bool) -> Line:
    words = printable(text.replace("\t", "    "))
    return line(Span(f"▸{words}", "critical")) if is_marked else line(f" {words}")
