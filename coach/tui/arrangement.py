"""What is made of the whole queue, or of all nodes: at once where they are few, else in a thread, while the
last of it stays on the screen.

Filtering and sorting tens of thousands of rows takes a good part of a second. A screen that waited for it
would hold up keys for as long.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")

AT_ONCE = 2000
"""So many rows take a few milliseconds."""


def put_keys_first() -> None:
    """Set up Python so that nothing holds up a key for long, however much the other threads read and sort.

    By default, a search for cycles among all that there is comes with every refresh: it goes through each job
    of the queue, for up to a tenth of a second. Jobs are in no cycle, and go as soon as nothing holds them,
    so that it is enough once in hours. And each turn of the event loop waits until a busy thread gives way,
    of which a key takes several.
    """
    gc.freeze()
    gc.set_threshold(700, 10, 1000)
    sys.setswitchinterval(0.001)


class Arranged(Generic[T]):
    """A value, and the source it was made of. It is made again when the source changes."""

    def __init__(self, first: T, deliver: Callable[[Callable[[], object]], object]) -> None:
        """`deliver` carries a finished piece of work back to the screens' thread."""
        self._value = first
        self._deliver = deliver
        self._source: object = None
        self._way: object = None
        self._is_busy = False

    def of(
        self, source: object, num_rows: int, way: object, make: Callable[[], T], on_made: Callable[[], object]
    ) -> T:
        """The value for this source (compared by what object it is) in this way; until it is made, the last
        one.

        `on_made` is called when it has come later. `make` must hold all that it needs: it may run in another
        thread.
        """
        if self._source is source and self._way == way:
            return self._value
        if num_rows <= AT_ONCE:
            self._take(source, way, make())
        elif not self._is_busy:
            self._is_busy = True
            work = partial(self._work, source, way, make, on_made)
            threading.Thread(target=work, name="arranging", daemon=True).start()
        return self._value

    @property
    def is_late(self) -> bool:
        """Whether the value is of something that was there before."""
        return self._is_busy

    def _work(
        self, source: object, way: object, make: Callable[[], T], on_made: Callable[[], object]
    ) -> None:
        try:
            value = make()
        except Exception as problem:
            self._deliver(partial(_raise, problem))
            return

        def arrive() -> None:
            self._is_busy = False
            self._take(source, way, value)
            on_made()

        self._deliver(arrive)

    def _take(self, source: object, way: object, value: T) -> None:
        self._source, self._way, self._value = source, way, value


def _raise(problem: Exception) -> None:
    """In the screens' thread, where a flaw ends the app with its reason."""
    raise problem
