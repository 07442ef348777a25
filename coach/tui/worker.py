"""One thread for slow work, one piece after the other: plans, submissions, cancellations.

So a second launch never overtakes the first, and the screens never wait for Slurm.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from coach.model.errors import OUT_OF_MEMORY, UserError

T = TypeVar("T")
FINISH_TIMEOUT_S = 15.0
"""Seconds that leaving waits for a submission or cancellation under way: longer than Slurm's clients take to
give up."""
FINISH_OTHERS_S = 1.0
"""The same for work that changes no job, such as a plan or a saved sort order. It is short because a file
system may not answer."""


class Worker:
    """The thread, and its queue of work. `deliver` calls a function in the screens' thread."""

    def __init__(self, deliver: Callable[[Callable[[], object]], object]) -> None:
        self._deliver = deliver
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._changes: set[object] = set()
        """Work under way that changes something."""

    def do(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], object],
        on_error: Callable[[UserError], object],
        *,
        is_change: bool = False,
    ) -> None:
        """Run `work` in the thread; then call `on_done` or `on_error` in the screens' thread."""

        def task() -> None:
            try:
                result = work()
            except UserError as error:
                self._deliver(partial(on_error, error))
            except OSError as error:
                refused = UserError(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
                self._deliver(partial(on_error, refused))
            except MemoryError:
                self._deliver(partial(on_error, UserError(OUT_OF_MEMORY)))
            else:
                self._deliver(partial(on_done, result))
            finally:
                self._changes.discard(task)

        if is_change:
            self._changes.add(task)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="desk", daemon=True)
            self._thread.start()
        self._tasks.put(task)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def finish(self, timeout_s: float = FINISH_TIMEOUT_S) -> None:
        """Wait for the work under way, for at most this time."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(timeout_s if self._changes else min(timeout_s, FINISH_OTHERS_S))
