"""One thread that does what may take long, one thing after the other: plans, submissions, cancellations.

A second launch never overtakes the first, and the screens never wait for Slurm.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from coach.model.errors import UserError

T = TypeVar("T")
FINISH_TIMEOUT_S = 15.0
"""How long leaving waits for a submission or cancellation that is under way: longer than Slurm's clients take
to give up."""
FINISH_OTHERS_S = 1.0
"""The same for work that changes no job: a plan, a kept sort order. A file system may not answer it."""


class Worker:
    """`deliver` carries a finished piece of work back to the screens' thread."""

    def __init__(self, deliver: Callable[[Callable[[], object]], object]) -> None:
        self._deliver = deliver
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._changes: set[object] = set()
        """Work that changes something, and has not come to its end."""

    def do(
        self,
        work: Callable[[], T],
        on_done: Callable[[T], object],
        on_error: Callable[[UserError], object],
        *,
        is_change: bool = False,
    ) -> None:
        """Do it in the thread; then call one of the two in the screens' thread."""

        def task() -> None:
            try:
                result = work()
            except UserError as error:
                self._deliver(partial(on_error, error))
            except OSError as error:
                refused = UserError(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
                self._deliver(partial(on_error, refused))
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
        """Let what is under way come to its end."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(timeout_s if self._changes else min(timeout_s, FINISH_OTHERS_S))
