"""The labels of the keys as they are shipped, for tests of what is drawn."""

from __future__ import annotations

from coach.tui.keys.table import SHIPPED


def shipped(key_id: str) -> str:
    return SHIPPED[key_id].label
