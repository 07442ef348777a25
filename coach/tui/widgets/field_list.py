"""A scrolling list of fields with their labels.

Textual compares each layout with the previous one to find the parts to paint. If a widget's region is
requested between a scroll and the next layout, the previous layout is already scrolled and nothing is
painted: labels then stand beside the values of other fields.
"""

from __future__ import annotations

from textual.containers import VerticalScroll


class FieldList(VerticalScroll):
    """The list. It is painted whole after each scroll. Its fields take the focus; the list itself does
    not."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, classes="pane", can_focus=False)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.refresh()
