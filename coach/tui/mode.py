"""How coach was opened, as far as it takes actions away."""

from __future__ import annotations

from enum import Enum


class Mode(Enum):
    """The value is the watermark."""

    LIVE = ""
    READONLY = "READONLY"
    ROOT = "READONLY: root"
    REPLAY = "REPLAY"
    DEMO = "DEMO"
