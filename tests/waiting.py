"""The one way to wait in a test: poll a condition until a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 4.0
"""A test machine runs several tests at once. A deadline ends a test that hangs; it measures nothing, and
costs nothing when all is well."""


def wait_until(
    condition: Callable[[], T], timeout_s: float = 30.0, what: str = "", every_s: float = 0.05
) -> T:
    """Return the first truthy value of `condition`; fail with `what` when none came within `timeout_s` (of an
    idle machine; here PATIENCE times that)."""
    timeout_s *= PATIENCE
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"within {timeout_s:g} s it did not happen: {what or condition}")
        time.sleep(every_s)
