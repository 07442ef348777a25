"""The Ios of commands, which report what takes long: an answer of Slurm, or a file of gigabytes.

Slurm's clients wait for half a minute before they say that the controller is away: after three seconds the
user is told. A log of gigabytes takes a minute to read: its user sees how far that is, and can stop it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from coach.analysis.spelling.sizes import format_bytes
from coach.cli.text import say
from coach.config import Settings
from coach.sources.io import CommandResult, Query, SystemIo, scrubbed_environment
from coach.sources.io import Io as Io

AFTER_S = 1.5
EVERY_S = 5.0
WAITING_AFTER_S = 3.0
_CLIENTS = frozenset({"squeue", "scontrol", "sinfo", "sacct", "sacctmgr", "sbatch"})


class TellingIo(SystemIo):
    """The real Io; `tell` gets a line if a Slurm client has not answered for a while, and no second one until
    Slurm has answered."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        timeout_s: float,
        tell: Callable[[str], object],
        waiting_after_s: float = WAITING_AFTER_S,
    ) -> None:
        super().__init__(env, timeout_s=timeout_s)
        self._tell = tell
        self._waiting_after_s = waiting_after_s
        self._is_silence_told = False

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        if query.argv[0] not in _CLIENTS or self._is_silence_told:
            result = super().run(query, timeout_s)
        else:
            limit_s = self._timeout_s if timeout_s is None else timeout_s
            words = f"Slurm has not answered for {self._waiting_after_s:.0f} s"
            words = f"{words}; {query.argv[0]} may take up to {limit_s:.0f} s"
            with telling_of_wait(self._tell_once, words, self._waiting_after_s):
                result = super().run(query, timeout_s)
        if result.returncode == 0:
            self._is_silence_told = False
        return result

    def _tell_once(self, words: str) -> None:
        self._is_silence_told = True
        self._tell(words)


@contextlib.contextmanager
def telling_of_wait(
    tell: Callable[[str], object], words: str, after_s: float = WAITING_AFTER_S
) -> Iterator[None]:
    """Call `tell` with these words if the block takes longer than `after_s` seconds."""
    timer = threading.Timer(after_s, tell, (words,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class ReadingIo(TellingIo):
    """`tell` also gets a line every few seconds while a file is read."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        timeout_s: float,
        tell: Callable[[str], object],
        after_s: float = AFTER_S,
        every_s: float = EVERY_S,
    ) -> None:
        super().__init__(env, timeout_s=timeout_s, tell=tell)
        self._every_s = every_s
        self._read_to: dict[Path, int] = {}
        self._due_s = time.monotonic() + after_s

    def read(self, path: Path, offset: int, limit: int, owner: int | None = None) -> bytes:
        data = super().read(path, offset, limit, owner)
        now_s = time.monotonic()
        read_to = self._read_to.get(path, 0)
        goes_on = offset <= read_to < offset + len(data)  # else this is another part, such as the end
        if goes_on:
            self._read_to[path] = offset + len(data)
        if offset and goes_on and now_s >= self._due_s:
            self._due_s = now_s + self._every_s
            size = format_bytes(self.size(path, owner))
            self._tell(f"reading {path}: {format_bytes(offset)} of {size} so far")
        return data


def slurm_io(settings: Settings) -> TellingIo:
    """A TellingIo with this process's environment; its lines go to standard error."""
    return TellingIo(scrubbed_environment(os.environ), timeout_s=settings.slurm_timeout_s, tell=say)


def reading_io(settings: Settings) -> ReadingIo:
    """The same for a command that reads whole logs."""
    return ReadingIo(scrubbed_environment(os.environ), timeout_s=settings.slurm_timeout_s, tell=say)
