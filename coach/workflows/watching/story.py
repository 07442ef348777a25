"""The demo's story: captions that follow the time of the recording, and that can be stepped through or
left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from coach.config import Settings
from coach.recorder import Chapter
from coach.workflows.watching.live_session import WatchSession
from coach.workflows.watching.recording import header_of, open_replay


class PlayClock:
    """The clock of a played recording: real time plus the time skipped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start_s = clock()
        self._skipped_s = 0.0

    def __call__(self) -> float:
        return self._clock() + self._skipped_s

    def played_s(self) -> float:
        """The position in the recording, in seconds."""
        return self() - self._start_s

    def skip_to(self, seconds: float) -> None:
        """Move forward to this time; never back."""
        self._skipped_s += max(0.0, seconds - self.played_s())


class Story:
    """Chooses the caption to show. `skip_to` moves the recording forward to a time."""

    def __init__(
        self, chapters: Sequence[Chapter], played_s: Callable[[], float], skip_to: Callable[[float], None]
    ) -> None:
        self.chapters = tuple(chapters)
        self.is_left = not self.chapters
        self._played_s = played_s
        self._skip_to = skip_to
        self._held: int | None = None
        """The caption that the user went back to; None: the recording's time decides."""

    @property
    def _by_time(self) -> int:
        played_s = self._played_s()
        return max((index for index, each in enumerate(self.chapters) if each.at_s <= played_s), default=0)

    @property
    def index(self) -> int:
        """The index of the caption shown."""
        return self._by_time if self._held is None else self._held

    @property
    def chapter(self) -> Chapter | None:
        """The caption shown; None after the story was left."""
        return None if self.is_left else self.chapters[self.index]

    def go_on(self) -> None:
        """Show the next caption, and skip the recording to it if needed. After the last the story is left."""
        index = self.index + 1
        if index >= len(self.chapters):
            self.is_left = True
        elif index > self._by_time:
            self._held = None
            self._skip_to(self.chapters[index].at_s)
        else:
            self._held = index

    def go_back(self) -> None:
        """Show the previous caption again."""
        self._held = max(0, self.index - 1)

    def leave(self) -> bool:
        """Leave the story. Returns False if it was left before."""
        was_told = not self.is_left
        self.is_left = True
        return was_told


def open_story(path: Path, settings: Settings) -> tuple[WatchSession, Story]:
    """A session that plays a recording, and its story. Raises UserError if the file is not one."""
    clock = PlayClock()
    session = open_replay(path, settings, clock=clock)

    def skip_to(seconds: float) -> None:
        clock.skip_to(seconds)
        session.refresh_soon()

    return session, Story(header_of(path).chapters, clock.played_s, skip_to)
