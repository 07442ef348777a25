"""A pane of lines made for its size, for charts and maps. They are drawn again when the size changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events

from coach.render.text import Line
from coach.tui.widgets.lines import LinesView

Draw = Callable[[int, int], Sequence[Line]]
"""Makes the lines for a width and a height."""


class DrawnView(LinesView):
    """The pane. Its title says if there is more than fits."""

    DEFAULT_CLASSES = "pane"
    _draw: Draw | None = None
    _base_title = ""

    def draw(self, title: str, draw: Draw) -> None:
        self._base_title, self._draw = title, draw
        self._redraw()

    def on_resize(self, event: events.Resize) -> None:
        self._redraw()

    def _redraw(self) -> None:
        height = self.room.height
        if self._draw is None or height <= 0:
            return
        # One column is reserved for the scrollbar, so that the lines are the same with and without it.
        lines = self._draw(self.size.width - 1, height)
        num_pages = -(-len(lines) // height)
        self.set_title(f"{self._base_title} · {num_pages} pages: PgDn" if num_pages > 1 else self._base_title)
        self.set_lines(lines)
