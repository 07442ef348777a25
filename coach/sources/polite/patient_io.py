"""Use late answers: an answer after the time limit serves the next look, and a request that is still open is
not sent again.

A busy controller answers late again and again. If each late answer were dropped and requested anew, the
screens would never get one, and the controller would have even more to do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coach.sources.io import CommandResult, Query, SystemIo

KINDS = ("jobs", "nodes", "partitions")
"""Kinds of requests that are repeated, and whose parsers use the separators of the query that was really
run."""

MAX_AGE_S = 60.0
"""A late answer older than this is dropped: it is time to ask again."""


@dataclass(slots=True)
class _Open:
    """A request without an answer yet, or with a late one."""

    has_ended: threading.Event = field(default_factory=threading.Event)
    result: CommandResult | None = None

    def is_of_use(self, now_s: float) -> bool:
        """False for a failed request, and for an answer that is too old."""
        if self.result is None:
            return True
        return self.result.returncode is not None and 0 <= now_s - self.result.time_s < MAX_AGE_S


class PatientIo(SystemIo):
    """The real world, for a session that polls."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        timeout_s: float,
        before_command: Callable[[int], bool],
        on_file_op: Callable[[Path | None], object],
    ) -> None:
        super().__init__(env, timeout_s=timeout_s, before_command=before_command, on_file_op=on_file_op)
        self._open: dict[tuple[str, ...], _Open] = {}
        self._lock = threading.Lock()

    def forget_late(self) -> None:
        """Drop all open requests, because something was changed just now."""
        with self._lock:
            self._open.clear()

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        if query.kind not in KINDS:
            return super().run(query, timeout_s)
        key, limit_s = (query.kind, *query.words), self._timeout_s if timeout_s is None else timeout_s
        with self._lock:
            known = self._open.pop(key, None)
        if known is not None and known.is_of_use(self.now()):
            return self._wait(key, known, query, limit_s)
        if not self._before_command(query.num_rpcs):
            return self._closing(query)
        asked = _Open()
        # The command may run on for the same time again. If coach ends earlier, the command ends with it.
        threading.Thread(
            target=self._ask, args=(asked, query, 2 * limit_s), name="asker", daemon=True
        ).start()
        return self._wait(key, asked, query, limit_s)

    def _ask(self, asked: _Open, query: Query, limit_s: float) -> None:
        try:
            asked.result = self._execute(query, limit_s)
        except Exception as problem:  # of the reader: without a result, the query would stay open for ever
            words = f"{query.argv[0]}: its answer was not read: {type(problem).__name__}: {problem}"
            asked.result = CommandResult(query, None, b"", "", self.now(), 0.0, words)
        asked.has_ended.set()

    def _wait(self, key: tuple[str, ...], asked: _Open, query: Query, limit_s: float) -> CommandResult:
        start = time.monotonic()
        if asked.has_ended.wait(limit_s) and asked.result is not None:
            return asked.result
        with self._lock:
            self._open[key] = asked
        words = f"{query.argv[0]}: no answer within {limit_s:.0f} s"
        return CommandResult(query, None, b"", "", self.now(), time.monotonic() - start, words)

    def has_late(self) -> bool:
        """True if an answer came after its time limit and waits to be used."""
        now_s = self.now()
        with self._lock:
            known = tuple(self._open.values())
        return any(one.result is not None and one.is_of_use(now_s) for one in known)
