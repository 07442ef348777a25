"""The mode in which coach was opened. Some modes remove actions."""

from __future__ import annotations

from enum import Enum


class Mode(Enum):
    """A mode. Its value is the watermark on the screens."""

    LIVE = ""
    READONLY = "READONLY"
    ROOT = "READONLY: root"
    REPLAY = "REPLAY"
    DEMO = "DEMO"

    @property
    def is_live(self) -> bool:
        """True if jobs can be launched and changed."""
        return self is Mode.LIVE

    @property
    def is_recorded(self) -> bool:
        """True if a recording is shown."""
        return self in (Mode.REPLAY, Mode.DEMO)
