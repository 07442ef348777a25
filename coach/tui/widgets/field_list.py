"""Fields with their labels, one below the other, that scroll.

Textual compares a layout with the one before to know what to paint. Where it was asked for a region between a
scroll and the layout that follows, the one before is already scrolled, and nothing is painted: labels then
stand beside the values of other fields.
"""

from __future__ import annotations

from textual.containers import VerticalScroll


class FieldList(VerticalScroll):
    """Painted whole whenever it has scrolled. Its fields have the focus, never itself."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, classes="pane", can_focus=False)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.refresh()
