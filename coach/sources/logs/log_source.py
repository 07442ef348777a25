"""Follow log files: read every byte once, scan it for the rules, and keep the end for the screen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from coach.model.reading import LogChunk, LogFiles, Reading
from coach.model.training.log import LogFile, LogTail, Signature
from coach.sources.follow import FileFollower, describe
from coach.sources.io import Io, OwnerIo
from coach.sources.logs.near_modules import NearModules
from coach.sources.logs.scanner import LogScanner

INTERVAL_S = 1.0
BITE_BYTES = 3 << 20
"""Larger buffers go back to the operating system after each read; allocating them anew took a third of the
time of a large log."""
FAR_BYTES = 64 << 20
"""If the reader is further behind than this, show the end of the log at once, before all of it is read."""

_END_BYTES = 64 << 10
_NUM_BITES_PER_END = 80
_LAST_WORDS_S = 60.0
"""Slurm and srun write their words about an ended job within this time."""


class _FollowedLog:
    """One log file: its follower, its scanner and its last tail."""

    def __init__(self, io: Io, path: Path, signatures: Sequence[Signature], start: int = 0) -> None:
        self._io = io
        self._start = start
        self._is_first_look = True
        self._follower = FileFollower(io, path, BITE_BYTES)
        self._path = path
        self._signatures = signatures
        self._scanner = LogScanner(signatures, str(path))
        self._tail: LogTail | None = None
        self._end: LogTail | None = None
        self._num_bites = 0
        self._is_flushed = True
        self._written_s: float | None = None
        self._has_been_read = False
        self._longest_pause_s = 0.0
        self._last_pause_s, self._last_pause_ended_s = 0.0, 0.0

    def read(self, target: str) -> tuple[LogChunk, bool, bool]:
        """Read on. Returns the new hits, True if all of the file was read, and True if the file exists.

        Raises OSError, but not if the file does not exist yet.
        """
        try:
            self._pass_over_start()
            bite = self._follower.read()
        except FileNotFoundError:
            if self._follower.offset:
                raise
            return LogChunk(target, (), self._scanner.tail()), True, False
        if bite.is_restart:
            self._scanner = LogScanner(self._signatures, str(self._path))
            self._tail, self._end = None, None
        hits = self._scanner.feed(bite.data, is_more=not bite.is_caught_up) if bite.data else []
        if bite.data:
            self._note_growth()
            self._has_been_read = True
            self._is_flushed, self._tail = False, None
        elif not self._is_flushed and bite.is_caught_up:
            # Nothing was added since the last look, so an unfinished line is taken as it is.
            hits, self._is_flushed = self._scanner.flush(), True
        if self._tail is None:
            self._tail = replace(
                self._far_end() or self._scanner.tail(),
                written_s=self._written_s,
                longest_pause_s=self._longest_pause_s,
                last_pause_s=self._last_pause_s,
            )
        # The scanner may still hold back hits at the end of a complete log, because more of the last error
        # may come. A second look at once fetches them: an ended job must not be judged without its last
        # lines.
        is_caught_up = bite.is_caught_up and not (self._is_first_look and bite.data)
        self._is_first_look = self._is_first_look and not bite.is_caught_up
        return LogChunk(target, tuple(hits), self._tail, bite.is_restart), is_caught_up, True

    def _note_growth(self) -> None:
        before_s = self._written_s
        self._written_s = self._io.now() if self._has_been_read else self._modified_s()
        if before_s is not None and self._written_s is not None:
            pause_s = self._written_s - before_s
            self._longest_pause_s = max(self._longest_pause_s, pause_s)
            is_past = self._written_s - self._last_pause_ended_s > _LAST_WORDS_S
            if is_past or pause_s >= self._last_pause_s:
                self._last_pause_s, self._last_pause_ended_s = pause_s, self._written_s

    def _modified_s(self) -> float | None:
        """None if the time is unknown, as in a recording."""
        try:
            return self._io.modified_s(self._path)
        except OSError:
            return None

    def _pass_over_start(self) -> None:
        """Count the lines that the file held before the target, and follow it from there.

        A file that is shorter than that was replaced, and is read from its beginning.
        """
        start, self._start = self._start, 0
        if not 0 < start <= (self._io.size(self._path) if start else 0):
            return
        num_lines = offset = 0
        while offset < start:
            data = self._io.read(self._path, offset, min(BITE_BYTES, start - offset))
            if not data:
                return
            num_lines += data.count(b"\n")
            offset += len(data)
        self._follower = FileFollower(self._io, self._path, BITE_BYTES, offset)
        self._scanner = LogScanner(self._signatures, str(self._path), num_lines)

    def _far_end(self) -> LogTail | None:
        """The last lines of a file of which much is unread; read again only once in many bites."""
        size = self._follower.size
        if self._scanner.is_binary or size - self._follower.offset <= FAR_BYTES:
            self._end, self._num_bites = None, 0
        else:
            if self._num_bites % _NUM_BITES_PER_END == 0:
                scanner = LogScanner((), str(self._path))
                with contextlib.suppress(OSError):  # the hits of this bite must still be reported
                    scanner.feed(self._io.read(self._path, size - _END_BYTES, _END_BYTES))
                    tail = scanner.tail()
                    self._end = replace(
                        tail,
                        lines=tail.lines[1:],
                        words=tail.words[1:],
                        blocks=(),
                        size_bytes=size,
                        is_counted=False,
                    )
            self._num_bites += 1
        return replace(self._end, unread_bytes=size - self._follower.offset) if self._end else None


class LogSource:
    """Follows the logs of one target. `files` is called at each look, because the paths of a foreign job
    become known late."""

    name = "log"
    interval_s = INTERVAL_S

    def __init__(
        self,
        io: Io,
        target: str,
        files: Callable[[], Sequence[Path]],
        signatures: Callable[[], Sequence[Signature]],
        start_of: Callable[[Path], int] = lambda path: 0,
    ) -> None:
        """`start_of`: number of bytes at a file's beginning that were written before the target."""
        self._io = io
        self._target = target
        self._files = files
        self._signatures = signatures
        self._start_of = start_of
        self._logs: dict[Path, _FollowedLog] = {}
        self._near = NearModules(io)

    def poll(self) -> Iterable[Reading]:
        """Yield a partial reading for each existing log, then one with all places that were searched."""
        start_s = self._io.now()
        try:
            paths = self._files()
        except OSError as problem:
            yield self._reading(start_s, None, describe(problem))
            return
        seen: list[LogFile] = []
        are_caught_up = True
        for path in paths:
            if path not in self._logs:
                self._logs[path] = _FollowedLog(self._io, path, self._signatures(), self._start_of(path))
            try:
                chunk, is_caught_up, is_found = self._logs[path].read(self._target)
            except OSError as problem:
                seen.append(LogFile(str(path), not isinstance(problem, FileNotFoundError), describe(problem)))
                continue
            owner = self._io.for_whom(path) if isinstance(self._io, OwnerIo) else None
            seen.append(LogFile(str(path), is_found, owner=owner))
            are_caught_up = are_caught_up and is_caught_up
            chunk = replace(chunk, hits=tuple(map(self._near.added_to, chunk.hits)))
            yield replace(self._reading(start_s, chunk), is_caught_up=is_caught_up, is_part=True)
        problems = [file.problem for file in seen if file.problem is not None]
        # Only a look that read no log at all has failed; it is repeated less often.
        error = problems[0] if problems and len(problems) == len(seen) else None
        last = self._reading(start_s, LogFiles(self._target, tuple(seen)), error)
        yield replace(last, is_caught_up=are_caught_up)

    def _reading(
        self, start_s: float, payload: LogChunk | LogFiles | None, error: str | None = None
    ) -> Reading:
        now_s = self._io.now()
        return Reading(self.name, now_s, now_s - start_s, payload, error, self._target)
