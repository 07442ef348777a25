"""The config's files as a source: a running session notes changes of the config like any other change.

It has a thread of its own, because a file system that hangs must not block the screens. It is a source, so
that the banner shows a broken new file until it is corrected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from coach.config import Settings
from coach.config.reload import LOOK_INTERVAL_S, Follower
from coach.model.reading import Reading
from coach.sources.io import Io


class SettingsSource:
    """Reads the files; `on_change` gets new settings, in this source's thread."""

    name = "config"
    interval_s = LOOK_INTERVAL_S

    def __init__(self, follower: Follower, io: Io, on_change: Callable[[Settings], object]) -> None:
        self._follower = follower
        self._io = io
        self._on_change = on_change

    def poll(self) -> Iterator[Reading]:
        start_s = time.monotonic()
        if self._follower.look() and self._follower.problem is None:
            self._on_change(self._follower.settings)
        duration_s = time.monotonic() - start_s
        yield Reading(self.name, self._io.now(), duration_s, None, self._follower.problem)
