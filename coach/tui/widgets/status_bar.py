"""The top line (breadcrumbs and the age of the data), the banner of errors, and the bottom line of keys."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from coach.render.text import BLANK, Line
from coach.tui.context import Context
from coach.tui.render.header import Hint, footer_line
from coach.tui.render.story import caption_line
from coach.tui.screen_specs import HOME, ScreenSpec
from coach.tui.widgets.lines import LinesView


class TopBar(LinesView):
    """One line on top of every screen."""

    def __init__(self) -> None:
        super().__init__(id="top", can_focus=False)


class Banner(LinesView):
    """The errors of the sources, one line each; no line without an error."""

    def __init__(self) -> None:
        super().__init__(id="banner", can_focus=False)

    def set_lines(self, lines: Sequence[Line]) -> None:
        if len(lines) != len(self.lines):
            self.styles.height = len(lines)
            self.display = bool(lines)
        super().set_lines(lines)


class KeyBar(LinesView):
    """The keys that work here, and at the right end a note, else the work under way, else the RPCs to Slurm.
    A click on a key presses it."""

    class Pressed(Message):
        def __init__(self, key_id: str) -> None:
            super().__init__()
            self.key_id = key_id

    def __init__(self) -> None:
        super().__init__(id="keys", can_focus=False)
        self._hints: Sequence[Hint] = ()
        self._note: Line = BLANK
        self._work: Line = BLANK
        self._spending: Line = BLANK

    def set_hints(self, hints: Sequence[Hint]) -> None:
        self._hints = hints
        self._draw()

    def set_note(self, note: Line) -> None:
        self._note = note
        self._draw()

    def set_work(self, work: Line) -> None:
        if work != self._work:
            self._work = work
            self._draw()

    def set_spending(self, spending: Line) -> None:
        if spending != self._spending:
            self._spending = spending
            self._draw()

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        if self.size.width:
            note = self._note or self._work or self._spending
            self.set_lines([footer_line(self._hints, note, self.size.width)])

    def on_click(self, event: events.Click) -> None:
        key_id = event.style.meta.get("key")
        if isinstance(key_id, str):
            self.post_message(self.Pressed(key_id))


class CaptionBar(LinesView):
    """One caption of the demo, above the keys; no line after the user leaves the demo's story."""

    def __init__(self) -> None:
        super().__init__(id="caption", can_focus=False)

    def tell(self, context: Context, spec: ScreenSpec, subjects: Sequence[str]) -> None:
        """Show the current caption. `subjects` are the runs and jobs that the screen is about."""
        story = context.story
        chapter = story.chapter if story is not None else None
        self.display = chapter is not None
        if story is None or chapter is None:
            return
        run = context.run(chapter.target or "")
        it = f"{run.recipe} {run.job_id}" if run is not None else "it"
        is_its_own = chapter.target in subjects and spec.name == "job"
        place = "first" if spec is HOME else "job" if is_its_own else ""
        count = len(story.chapters)
        self.set_lines(
            [
                caption_line(
                    chapter.name, story.index + 1, count, it, place, context.label, self.app.size.width
                )
            ]
        )
