"""The shipped labels of the keys, for tests of drawn lines."""

from __future__ import annotations

from coach.tui.keys import SHIPPED


def shipped(key_id: str) -> str:
    return SHIPPED[key_id].label
