"""A curve in braille dots, as large as its place."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from coach.tui.render.chart import Point
from coach.tui.render.curve import curve_lines
from coach.tui.widgets.lines import LinesView


class Curve(LinesView):
    """Draws points; draws again when they or its size changed."""

    def __init__(
        self, title: str, *, unit: str = "", starts_at_zero: bool = False, id: str | None = None
    ) -> None:
        super().__init__(id=id, can_focus=False)
        self._heading = title
        self._unit = unit
        self._starts_at_zero = starts_at_zero
        self._points: Sequence[Point] = ()

    def set_points(self, points: Sequence[Point]) -> None:
        self._points = points
        self._draw()

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        width, height = self.size
        if width > 12 and height > 2:
            self.set_lines(
                curve_lines(self._heading, self._points, width, height, self._unit, self._starts_at_zero)
            )
