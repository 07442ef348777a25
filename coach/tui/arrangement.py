"""Values computed from the whole queue or all nodes: at once for few rows, else in a thread while the
previous value stays on the screen.

Filtering and sorting tens of thousands of rows takes a good part of a second. Done in the screens' thread, it
would delay keys by that time.
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
"""Up to this number of rows, the computation takes a few milliseconds and runs in the screens' thread."""


def put_keys_first() -> None:
    """Configure Python so that other threads delay a key only briefly.

    With Python's defaults, each refresh starts a full garbage collection, which visits every job of the queue
    for up to 0.1 s. Jobs are in no reference cycle and are freed by their reference count, so one collection
    in some hours is enough. Also, each turn of the event loop waits for a busy thread to release the
    interpreter, and one key takes several turns; a shorter switch interval shortens each wait.
    """
    gc.freeze()
    gc.set_threshold(700, 10, 1000)
    sys.setswitchinterval(0.001)


class Arranged(Generic[T]):
    """A value and the source it was computed from. A new source means a new computation."""

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
        """The value of this source and this `way`; until it is computed, the previous value. Sources are
        compared by identity, ways by equality.

        `on_made` is called only if the value was computed in a thread. `make` may run there, so it must read
        nothing that changes.
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
        """True while a thread computes a newer value."""
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
    """Raise in the screens' thread, where an exception ends the app with its reason."""
    raise problem
