"""Log files: every byte read once, scanned for what the rules look for, and the tail kept for the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from coach.model.log import LogTail, Signature
from coach.model.reading import LogChunk, Reading
from coach.sources.follow import FileFollower, describe
from coach.sources.io import Io
from coach.sources.log_scanner import LogScanner

INTERVAL_S = 1.0
BITE_BYTES = 4 << 20


class _FollowedLog:
    """One log file: its follower, its scanner and what was last said about it."""

    def __init__(self, io: Io, path: Path, signatures: Sequence[Signature]) -> None:
        self._follower = FileFollower(io, path, BITE_BYTES)
        self._path = path
        self._signatures = signatures
        self._scanner = LogScanner(signatures, str(path))
        self._tail: LogTail | None = None
        self._is_flushed = True

    def read(self, target: str) -> tuple[LogChunk, bool]:
        """What is new, and whether all of the file was read. Raises OSError, but not for a file that is yet to come."""
        try:
            bite = self._follower.read()
        except FileNotFoundError:
            if self._follower.offset:
                raise
            return LogChunk(target, (), self._scanner.tail()), True
        if bite.is_restart:
            self._scanner = LogScanner(self._signatures, str(self._path))
            self._tail = None
        hits = self._scanner.feed(bite.data) if bite.data else []
        if bite.data:
            self._is_flushed, self._tail = False, None
        elif not self._is_flushed:
            # Nothing came since the last look: an unfinished line is taken as it stands.
            hits, self._is_flushed = self._scanner.flush(), True
        if self._tail is None:
            self._tail = self._scanner.tail()
        return LogChunk(target, tuple(hits), self._tail, bite.is_restart), bite.is_caught_up


class LogSource:
    """Follows the logs of one target. `files` is asked at each look, because a foreign job's paths are learned late."""

    name = "log"

    def __init__(
        self,
        io: Io,
        target: str,
        files: Callable[[], Sequence[Path]],
        signatures: Callable[[], Sequence[Signature]],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.interval_s = interval_s
        self._io = io
        self._target = target
        self._files = files
        self._signatures = signatures
        self._logs: dict[Path, _FollowedLog] = {}

    def poll(self) -> Iterable[Reading]:
        start_s = self._io.now()
        try:
            paths = self._files()
        except OSError as problem:
            yield Reading(
                self.name, self._io.now(), self._io.now() - start_s, None, describe(problem), self._target
            )
            return
        for path in paths:
            if path not in self._logs:
                self._logs[path] = _FollowedLog(self._io, path, self._signatures())
            chunk, error, is_caught_up = None, None, True
            try:
                chunk, is_caught_up = self._logs[path].read(self._target)
            except OSError as problem:
                error = describe(problem)
            now_s = self._io.now()
            yield Reading(
                self.name, now_s, now_s - start_s, chunk, error, self._target, is_caught_up=is_caught_up
            )
