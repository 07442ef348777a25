"""The interface of a source: an object that runs in its own thread until it is told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from coach.model.reading import Reading

Emit = Callable[[Reading], None]


@runtime_checkable
class Source(Protocol):
    """Emits Readings from its own thread until `stop` is set. It never raises: a failure is a Reading with an
    error."""

    name: str

    def run(self, emit: Emit, stop: threading.Event) -> None: ...


class PollingSource(Protocol):
    """A source that can also be polled once, as headless commands do."""

    name: str
    interval_s: float

    def poll(self) -> Iterable[Reading]: ...
