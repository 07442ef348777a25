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
