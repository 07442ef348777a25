"""Answers that come after the limit are used at the next look, and a question that is still open is not put a
second time.

A controller that is busy answers after the limit again and again. If each of its answers were thrown away and
asked for anew, the screens would never get one, and the controller would have the more to do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coach.sources.io import CommandResult, Query, SystemIo

KINDS = ("jobs", "nodes", "partitions")
"""Questions that are put again and again, and whose readers take the separators of the query that was really
run."""

MAX_AGE_S = 60.0
"""A late answer that is older than this is not used: it is time to ask again."""


@dataclass(slots=True)
class _Open:
    """A question that is being asked, or was answered late."""

    has_ended: threading.Event = field(default_factory=threading.Event)
    result: CommandResult | None = None

    def is_of_use(self, now_s: float) -> bool:
        """False for a failure, and for an answer that came long ago."""
        if self.result is None:
            return True
        return self.result.returncode is not None and 0 <= now_s - self.result.time_s < MAX_AGE_S


class PatientIo(SystemIo):
    """The real world for a session that looks again and again."""

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
        """Something was changed just now: what was asked before no longer counts."""
        with self._lock:
            self._open.clear()

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        if query.kind not in KINDS:
            return super().run(query, timeout_s)
        key, limit_s = _without_separators(query), self._timeout_s if timeout_s is None else timeout_s
        with self._lock:
            known = self._open.pop(key, None)
        if known is not None and known.is_of_use(self.now()):
            return self._wait(key, known, query, limit_s)
        if not self._before_command(query.num_rpcs):
            return self._closing(query)
        asked = _Open()
        # It goes on for as long again; when coach ends before that, its client ends with it.
        threading.Thread(
            target=self._ask, args=(asked, query, 2 * limit_s), name="asker", daemon=True
        ).start()
        return self._wait(key, asked, query, limit_s)

    def _ask(self, asked: _Open, query: Query, limit_s: float) -> None:
        asked.result = self._execute(query, limit_s)
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
        """Whether an answer has come after its limit, and waits to be used."""
        now_s = self.now()
        with self._lock:
            known = tuple(self._open.values())
        return any(one.result is not None and one.is_of_use(now_s) for one in known)


def _without_separators(query: Query) -> tuple[str, ...]:
    """The question without its random parts."""
    words = query.argv
    for token, mark in ((query.separator, "\ue001"), (query.record_end, "\ue002")):
        words = tuple(word.replace(token, mark) for word in words) if token else words
    return query.kind, *words
