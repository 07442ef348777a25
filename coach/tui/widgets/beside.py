"""The detail of the row under the cursor, beside the list: a page, and below it the end of a log."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Vertical

from coach.model.training.log import LogTail
from coach.render.text import Line
from coach.tui.widgets.lines import LinesView
from coach.tui.widgets.log_tail import LogView

_LEAST_LOG = 6


class Beside(Vertical):
    """The detail. It scrolls when it has the focus."""

    def __init__(self) -> None:
        super().__init__(id="beside")
        self._title = ""

    def compose(self) -> ComposeResult:
        page = LinesView(id="detail", classes="pane")
        log = LogView(id="detail_log")
        log.can_focus = False
        yield page
        yield log

    def show(
        self,
        title: str,
        lines_at: Callable[[int], list[Line]],
        tail: LogTail | None = None,
        marked: int | None = None,
        now_s: float | None = None,
    ) -> None:
        """`lines_at` makes the page for a width; `marked` is the line of the log that proves the cause."""
        page, log = self.query_one("#detail", LinesView), self.query_one("#detail_log", LogView)
        rows, height = lines_at(max(20, self.size.width - 2)), self.size.height
        page.set_title(title)
        page.set_lines(rows)
        if title != self._title:
            self._title = title
            page.scroll_to(0, 0, animate=False)
        log.display = tail is not None and height > 3 * _LEAST_LOG
        if tail is None or not log.display:
            page.styles.height = "1fr"
            return
        page.styles.height = min(1 + max(1, len(rows)), height - _LEAST_LOG)
        log.set_tail(tail, marked, now_s)
