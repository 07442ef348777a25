"""A pane of lines that repaints only the lines that changed.

All of coach's text is shown by such panes, so that an unchanged screen sends nothing over a slow connection,
and text is never read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from coach.render.text import Line, Tone, line_width, printable
from coach.tui.theme import paint_of

_MOVES: list[BindingType] = [
    Binding("up,k", "scroll_up", "Up", show=False),
    Binding("down,j", "scroll_down", "Down", show=False),
    Binding("left", "scroll_left", "Left", show=False),
    Binding("right", "scroll_right", "Right", show=False),
    Binding("home,g", "scroll_home", "First line", show=False),
    Binding("end,G", "scroll_end", "Last line", show=False),
    Binding("pageup", "page_up", "Page up", show=False),
    Binding("pagedown", "page_down", "Page down", show=False),
]


class LinesView(ScrollView, can_focus=True):
    """A pane of lines that scrolls, and repaints only changed lines."""

    BINDINGS: ClassVar[list[BindingType]] = _MOVES

    def __init__(self, *, id: str | None = None, classes: str | None = None, can_focus: bool = True) -> None:
        super().__init__(id=id, classes=classes)
        self.can_focus = can_focus
        self._lines: Sequence[Line] = ()
        self._title = ""

    def on_mount(self) -> None:
        self.watch(self.app, "theme", self._repaint_all, init=False)

    def _repaint_all(self) -> None:
        self.refresh()

    @property
    def lines(self) -> Sequence[Line]:
        return self._lines

    def action_page_down(self) -> None:
        self._scroll_page(1)

    def action_page_up(self) -> None:
        self._scroll_page(-1)

    def _scroll_page(self, direction: int) -> None:
        """Scroll at once: Textual scrolls after the next paint, so that one of two keys before it is lost."""
        if not self.allow_vertical_scroll:
            raise SkipAction
        y = self.scroll_target_y + direction * self.room.height
        self.scroll_to(y=y, animate=False, immediate=True)

    def set_title(self, title: str) -> None:
        """Set the title in the border. It is never markup, and is painted only if it changed."""
        if title != self._title:
            self._title = title
            # The public attribute would repaint all lines of the pane.
            self._border_title = Content(f" {title} ")
            self.refresh(Region(0, -1, self.outer_size.width, 1))

    def set_lines(self, lines: Sequence[Line]) -> None:
        """Replace the lines. Only lines that differ are repainted."""
        old, self._lines = self._lines, lines
        self._measure(max((line_width(row) for row in lines), default=0), len(lines))
        self._repaint_changes(old, lines)

    def fit_lines(self, lines: Sequence[Line]) -> None:
        """Replace the lines, and take as much height as they need."""
        self.styles.height = len(lines)
        self.set_lines(lines)

    def _measure(self, width: int, height: int) -> None:
        if self.virtual_size != Size(width, height):
            self.virtual_size = Size(width, height)

    @property
    def room(self) -> Size:
        """The size left for text, without border and scrollbar."""
        return self.scrollable_content_region.size

    def _repaint_changes(self, old: Sequence[Line], new: Sequence[Line], first: int = 0) -> None:
        """Repaint the lines in sight that differ; `first` lines on top do not scroll."""
        top, most = self.scroll_offset.y, max(len(old), len(new))
        for index in range(top, min(most, top + self.room.height)):
            if index >= len(old) or index >= len(new) or old[index] != new[index]:
                self._repaint(index, first)

    def _repaint(self, y: int, first: int = 0) -> None:
        """Repaint one line of the content, if it is in sight."""
        row = y - self.scroll_offset.y + first
        if first <= row < self.room.height:
            self.refresh(Region(0, row, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        scroll_x, scroll_y = self.scroll_offset
        index = scroll_y + y
        if index >= len(self._lines):
            return Strip.blank(self.room.width, self.rich_style)
        row, width = self._lines[index], self.room.width
        strip = self.strip_of(row).crop_extend(scroll_x, scroll_x + width, self.rich_style)
        if line_width(row) <= scroll_x + width:
            return strip.simplify()  # each segment sends its colours again
        # There is more to the right: ← and → scroll.
        sign = Segment("›", self._style_of("muted", self.rich_style, ""))
        return Strip.join([strip.crop(0, width - 1), Strip([sign])])

    def strip_of(self, row: Line, base: Style | None = None) -> Strip:
        """The line with the theme's colours for its tones. Control characters that a renderer forgot are
        replaced here."""
        style = base or self.rich_style
        return Strip(
            [
                Segment(printable(span.text), self._style_of(span.tone, style, span.action))
                for span in row
                if span.text
            ]
        )

    def _style_of(self, tone: Tone, base: Style, action: str) -> Style:
        style = base + paint_of(self.app.theme).tones[tone] if tone else base
        return style + Style.from_meta({"key": action}) if action else style
