"""Say that a launch waits for the controller, as long as nobody knows why nothing happens."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping

from coach.sources.io import CommandResult, Query, SystemIo

WAITING_AFTER_S = 5.0
_CLIENTS = frozenset({"squeue", "scontrol", "sinfo", "sacct", "sacctmgr", "sbatch"})


class TellingIo(SystemIo):
    """The real world; `tell` gets a line when a client of Slurm's has not answered for a while."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        timeout_s: float,
        tell: Callable[[str], object],
        after_s: float = WAITING_AFTER_S,
    ) -> None:
        super().__init__(env, timeout_s=timeout_s)
        self._tell = tell
        self._after_s = after_s

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        if query.argv[0] not in _CLIENTS:
            return super().run(query, timeout_s)
        with telling_of_wait(self._tell, self._after_s):
            return super().run(query, timeout_s)


@contextlib.contextmanager
def telling_of_wait(tell: Callable[[str], object], after_s: float = WAITING_AFTER_S) -> Iterator[None]:
    """Tell it if the block takes longer than this."""
    timer = threading.Timer(after_s, tell, ("waiting for the controller",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
