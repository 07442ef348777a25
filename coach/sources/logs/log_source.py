"""Log files: every byte read once, scanned for what the rules look for, and the tail kept for the screen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from coach.model.reading import LogChunk, LogFiles, Reading
from coach.model.training.log import LogFile, LogTail, Signature
from coach.sources.follow import FileFollower, describe
from coach.sources.io import Io
from coach.sources.logs.scanner import LogScanner

INTERVAL_S = 1.0
BITE_BYTES = 3 << 20
"""With more, the memory of each piece goes back to the system and is asked for anew, which took a third of
the time of a large log."""
FAR_BYTES = 64 << 20
"""Who is further behind than this shows the end of the log at once, long before all of it was read."""

_END_BYTES = 64 << 10
_NUM_BITES_PER_END = 80


class _FollowedLog:
    """One log file: its follower, its scanner and what was last said about it."""

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

    def read(self, target: str) -> tuple[LogChunk, bool, bool]:
        """What is new, whether all of the file was read, and whether there is one.

        Raises OSError, but not for a file that is yet to come.
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
            self._written_s = self._io.now() if self._has_been_read else self._modified_s()
            self._has_been_read = True
            self._is_flushed, self._tail = False, None
        elif not self._is_flushed and bite.is_caught_up:
            # Nothing came since the last look: an unfinished line is taken as it stands.
            hits, self._is_flushed = self._scanner.flush(), True
        if self._tail is None:
            self._tail = replace(self._far_end() or self._scanner.tail(), written_s=self._written_s)
        # The end of a log that is whole may still be held, as more of its last error may come. A second look
        # at once takes it: an ended job must not be judged without its last words.
        is_caught_up = bite.is_caught_up and not (self._is_first_look and bite.data)
        self._is_first_look = self._is_first_look and not bite.is_caught_up
        return LogChunk(target, tuple(hits), self._tail, bite.is_restart), is_caught_up, True

    def _modified_s(self) -> float | None:
        """None where nobody knows, as in a recording."""
        try:
            return self._io.modified_s(self._path)
        except OSError:
            return None

    def _pass_over_start(self) -> None:
        """Count the lines of what the file held before, and follow it from there.

        A file that is shorter by now began anew.
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
        """The last lines of a file that is far from being read; looked at anew only now and then."""
        size = self._follower.size
        if self._scanner.is_binary or size - self._follower.offset <= FAR_BYTES:
            self._end, self._num_bites = None, 0
        else:
            if self._num_bites % _NUM_BITES_PER_END == 0:
                scanner = LogScanner((), str(self._path))
                with contextlib.suppress(OSError):  # what was found in this bite must still be told
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
    """Follows the logs of one target. `files` is asked at each look, because a foreign job's paths are
    learned late."""

    name = "log"

    def __init__(
        self,
        io: Io,
        target: str,
        files: Callable[[], Sequence[Path]],
        signatures: Callable[[], Sequence[Signature]],
        interval_s: float = INTERVAL_S,
        start_of: Callable[[Path], int] = lambda path: 0,
    ) -> None:
        """`start_of`: how many bytes of a file are not of the target, because they stood there before."""
        self.interval_s = interval_s
        self._io = io
        self._target = target
        self._files = files
        self._signatures = signatures
        self._start_of = start_of
        self._logs: dict[Path, _FollowedLog] = {}

    def poll(self) -> Iterable[Reading]:
        """A part for each log that is there, and then where all of them were looked for."""
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
            seen.append(LogFile(str(path), is_found))
            are_caught_up = are_caught_up and is_caught_up
            yield replace(self._reading(start_s, chunk), is_caught_up=is_caught_up, is_part=True)
        problems = [file.problem for file in seen if file.problem is not None]
        # Only a look that brought nothing at all has failed, and is repeated more rarely.
        error = problems[0] if problems and len(problems) == len(seen) else None
        last = self._reading(start_s, LogFiles(self._target, tuple(seen)), error)
        yield replace(last, is_caught_up=are_caught_up)

    def _reading(
        self, start_s: float, payload: LogChunk | LogFiles | None, error: str | None = None
    ) -> Reading:
        now_s = self._io.now()
        return Reading(self.name, now_s, now_s - start_s, payload, error, self._target)
