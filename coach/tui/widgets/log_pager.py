"""A pane for a window of a log. It follows the log while the end is in sight, and stands still after the user
scrolls up.

It posts a message when it needs another window, and does not read the file itself.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from rich.cells import chop_cells
from textual import events
from textual.geometry import Size
from textual.message import Message

from coach.model.training.log_window import LogWindow, folds_case
from coach.render.text import Line, Span, Tone, line_width, muted, printable
from coach.tui.widgets.lines import LinesView

_MIN_NUMBERED_WIDTH = 100
"""On a narrower terminal, line numbers are shown only after their key."""


class LogPager(LinesView):
    """The pager, for a file of any size."""

    class Moved(Message):
        """The lines in sight have changed."""

    class Wanted(Message):
        """The user wants lines outside the window."""

        def __init__(self, offset: int | None) -> None:
            """`offset` is the byte at which the first line in sight begins; None: the log's end."""
            super().__init__()
            self.offset = offset

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, classes="pane")
        self.window: LogWindow | None = None
        self.is_wrapped = True
        self.is_numbered: bool | None = None
        """True if line numbers are shown; None: if the terminal is wide enough."""
        self.words = ""
        """The search words, which are highlighted in all lines."""
        self.focus_offset: int | None = None
        """The byte at which the found line begins."""
        self.follows = True
        """True while the log's end is in sight and stays there as the log grows."""
        self._first_rows: list[int] = []
        """The first row of each line of the window."""
        self._top: int | None = None
        """The byte at which the first line in sight begins."""
        self._wanted: int | None = None
        """The byte for which the last window was requested because the user came near the window's end."""
        self._laid_out_for = Size(0, 0)
        self._is_placing = False
        self._is_focus_awaited = False
        """True until the found line is in sight."""

    # Display

    def set_window(self, window: LogWindow, *, top: int | None = None, is_focused: bool = False) -> None:
        """Show another window: its end, or first the line that begins at byte `top`, or the line of its
        focus."""
        self.window = window
        if is_focused and window.focus is not None:
            self.focus_offset = window.offsets[window.focus]
        self._is_focus_awaited = is_focused and window.focus is not None
        self.follows = top is None and not self._is_focus_awaited
        self._top = top
        self._lay_out()

    def show_line(self, index: int) -> None:
        """Scroll to a line of the window and highlight it as the found line."""
        if self.window is not None:
            self.set_window(replace(self.window, focus=index), is_focused=True)

    def redraw(self) -> None:
        """Draw the same lines again, after a change of the display options."""
        self._lay_out()

    def _lay_out(self) -> None:
        if self.window is None:
            self.set_lines([])
            return
        self._is_placing = True
        self._laid_out_for = self.outer_size
        rows: list[Line] = []
        self._first_rows = []
        width = self._number_width()
        for index in range(len(self.window.lines)):
            self._first_rows.append(len(rows))
            rows += self._rows_of(self.window, index, width)
        self._lines = rows
        self._measure(max((line_width(row) for row in rows), default=0), len(rows))
        if self.allow_vertical_scroll:
            # In the new place at once: a line that is painted in the old place first is sent twice.
            self._scroll_to_place()
        self.refresh()
        self.call_after_refresh(self._place)

    def _number_width(self) -> int:
        window = self.window
        is_wanted = (
            self.app.size.width >= _MIN_NUMBERED_WIDTH if self.is_numbered is None else self.is_numbered
        )
        if window is None or window.first_line is None or not is_wanted:
            return 0
        return len(f"{window.first_line + len(window.lines) - 1}") + 1

    def _rows_of(self, window: LogWindow, index: int, number_width: int) -> list[Line]:
        """The rows of a line of the log: one row, or as many as it needs when wrapped."""
        text = printable(window.lines[index].replace("\t", "    "))
        is_found = window.offsets[index] == self.focus_offset
        tone: Tone = "critical" if index in window.errors else ""
        mark = Span("▸", "accent") if is_found else Span(" ")
        number = f"{(window.first_line or 0) + index:>{number_width - 1}} " if number_width else ""
        stream = f"{_short(window.streams[index])} " if window.streams else ""
        room = self.room.width - 1 - number_width - len(stream)
        pieces = chop_cells(text, room) if self.is_wrapped and room > 0 and text else [text]
        return [
            (
                mark if at == 0 else Span(" "),
                muted(number if at == 0 else " " * len(number)),
                muted(stream if at == 0 else " " * len(stream)),
                *self._spans(piece, tone),
            )
            for at, piece in enumerate(pieces)
        ]

    def _spans(self, text: str, tone: Tone) -> list[Span]:
        """The text, with the search words in another colour."""
        words = self.words
        where = text.lower() if folds_case(words) else text
        if not words or words not in where or len(where) != len(text):
            return [Span(text, tone)]
        spans, end = [], 0
        while (place := where.find(words, end)) >= 0:
            spans += [Span(text[end:place], tone), Span(text[place : place + len(words)], "key")]
            end = place + len(words)
        return [*spans, Span(text[end:], tone)]

    # Position

    def _place(self) -> None:
        """Scroll to the wanted line, after the layout of the lines."""
        self._scroll_to_place()
        self._is_placing = self._is_focus_awaited = False
        self._note_place()

    def _scroll_to_place(self) -> None:
        window = self.window
        if window is not None:
            if self._is_focus_awaited and window.focus is not None:
                row = self._first_rows[window.focus] - self.room.height // 3
                self.scroll_to(y=max(0, row), animate=False, immediate=True)
            elif self.follows or self._top is None:
                self.scroll_end(animate=False, immediate=True)
            else:
                self.scroll_to(y=self._first_rows[self._line_of(self._top)], animate=False, immediate=True)

    def _line_of(self, offset: int) -> int:
        """Index of the line of the window that holds this byte, or the nearest."""
        assert self.window is not None
        return min(max(0, bisect_right(self.window.offsets, offset) - 1), len(self.window.lines) - 1)

    def _note_place(self) -> None:
        window = self.window
        if window is None or not window.lines:
            return
        self._top = window.offsets[self.in_sight[0]]
        self.follows = window.has_end and self.scroll_offset.y >= self.max_scroll_y
        page = self.room.height
        is_near_start = self.scroll_offset.y < page and not window.has_start
        is_near_end = self.max_scroll_y - self.scroll_offset.y < page and not window.has_end
        if (is_near_start or is_near_end) and self._top != self._wanted:
            self._wanted = self._top  # for an endless line, the same window comes back
            self.post_message(self.Wanted(self._top))
        self.post_message(self.Moved())

    @property
    def in_sight(self) -> tuple[int, int]:
        """Indexes of the first and the last line in sight."""
        y = self.scroll_offset.y
        last = bisect_right(self._first_rows, y + max(0, self.room.height - 1)) - 1
        return max(0, bisect_right(self._first_rows, y) - 1), max(0, last)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._is_placing and self.outer_size == self._laid_out_for:
            self._note_place()

    def on_resize(self, event: events.Resize) -> None:
        if self.outer_size != self._laid_out_for:
            self._lay_out()

    def action_scroll_home(self) -> None:
        if self.window is not None and not self.window.has_start:
            self.post_message(self.Wanted(0))
        else:
            super().action_scroll_home()

    def action_scroll_end(self) -> None:
        if self.window is not None and not self.window.has_end:
            self.post_message(self.Wanted(None))
        else:
            super().action_scroll_end()


def _short(file: str) -> str:
    """The letter of a stream, shown beside each line."""
    name = file.rsplit("/", 1)[-1]
    return "e" if name.endswith((".err", ".e")) or "stderr" in name else "o"
