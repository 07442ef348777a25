"""A scrolling list of fields with their labels.

Textual compares each layout with the previous one to find the parts to paint. If a widget's region is
requested between a scroll and the next layout, the previous layout is already scrolled and nothing is
painted: labels then stand beside the values of other fields.
"""

from __future__ import annotations

from textual.containers import VerticalScroll


class FieldList(VerticalScroll, can_focus=False):
    """The list. It is painted whole after each scroll. Its fields take the focus; the list itself does
    not."""

    DEFAULT_CLASSES = "pane"

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.refresh()
