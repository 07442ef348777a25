"""An Io that plays a recording. At each time, a query gets the answer that was recorded then, and a file has
the length that it had then.

The clock is virtual: it starts at the recording's start, runs at a chosen speed and stops at the recording's
end.
"""

from __future__ import annotations

import errno
import os
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coach.recorder.recording import Entry, Recording, decode_bytes
from coach.sources.io import CommandResult, Query

_FIRST_LOOK_S = 1.0
"""Seconds. Files and directories that the recorder read within this time are present from the start.
Otherwise the first screen would be empty."""
_START_S = 5.0
"""Seconds. A query that comes before its first recorded answer gets that answer, if the recorded command
started no later than this after the query."""


@dataclass(slots=True)
class _Timeline:
    """Values in the order of their recording times."""

    times: list[float] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, time_s: float, value: Any) -> None:
        # Threads wrote entries in the order in which they got the lock, so a time may be slightly earlier
        # than the one before it.
        self.times.append(max(time_s, self.times[-1]) if self.times else time_s)
        self.values.append(value)

    def at(self, time_s: float) -> Any | None:
        place = bisect_right(self.times, time_s)
        return self.values[place - 1] if place else None


@dataclass(slots=True)
class _Content:
    """What was recorded of a file since it was created or truncated."""

    data: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True, slots=True)
class _FileState:
    """A file at one time: the first `length` bytes of `content`, or the error that reading it gave."""

    content: _Content
    length: int
    size: int
    errno: int | None = None


class ReplayIo:
    """Replace the real Io. `clock` is a monotonic clock in seconds; the default is real time."""

    def __init__(
        self, recording: Recording, clock: Callable[[], float] = time.monotonic, speed: float = 1.0
    ) -> None:
        self.recording = recording
        self._clock = clock
        self._speed = speed
        self._clock_start = clock()
        self._end_s = recording.end_s
        self._answers: dict[tuple[str, tuple[str, ...]], _Timeline] = {}
        """(kind, words) of a query → its answers."""
        self._files: dict[str, _Timeline] = {}
        self._dirs: dict[str, _Timeline] = {}
        self._modified: dict[str, _Timeline] = {}
        by_id: dict[int, CommandResult] = {}
        for entry in recording.entries:
            if entry["k"] in ("run", "again"):
                self._add_answer(entry, by_id)
            else:
                self._add_path_entry(entry)

    def now(self) -> float:
        start_s = self.recording.header.time_s
        return min(start_s + (self._clock() - self._clock_start) * self._speed, self._end_s)

    @property
    def _seen_s(self) -> float:
        """The time up to which files are present."""
        return max(self.now(), self.recording.header.time_s + _FIRST_LOOK_S)

    @property
    def is_at_end(self) -> bool:
        return self.now() >= self._end_s

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        now_s = self.now()
        timeline = self._answers.get((query.kind, query.words)) or self._only_like(query)
        if timeline is not None:
            result: CommandResult | None = timeline.at(now_s)
            if result is None:
                first: CommandResult = timeline.values[0]
                is_near = first.time_s - first.duration_s <= now_s + _START_S
                result = first if is_near else None
            if result is not None:
                return result
        words = f"{query.argv[0]}: not in the recording" + (" yet" if timeline is not None else "")
        return CommandResult(query, None, b"", "", now_s, 0.0, words)

    def read(self, path: Path, offset: int, limit: int, owner: int | None = None) -> bytes:
        state = self._file(path)
        return bytes(state.content.data[offset : min(offset + limit, state.length)])

    def size(self, path: Path, owner: int | None = None) -> int:
        return self._file(path).size

    def modified_s(self, path: Path, owner: int | None = None) -> float:
        timeline = self._modified.get(str(path))
        modified_s: float | None = timeline.at(self._seen_s) if timeline is not None else None
        if modified_s is None:
            raise _error(errno.ENOENT, path)
        return modified_s

    def owner_of(self, path: Path) -> int:
        """This user: the recorder has judged whose files it read."""
        return os.geteuid()

    def list_dir(self, path: Path) -> list[str]:
        timeline = self._dirs.get(str(path))
        names = timeline.at(self._seen_s) if timeline is not None else None
        if names is None:
            raise _error(errno.ENOTDIR if str(path) in self._files else errno.ENOENT, path)
        if isinstance(names, int):
            raise _error(names, path)
        return list(names)

    def real_path(self, path: Path) -> Path:
        """The path itself. A recording holds no links; it holds files under the paths that coach read."""
        return path

    def _file(self, path: Path) -> _FileState:
        timeline = self._files.get(str(path))
        state: _FileState | None = timeline.at(self._seen_s) if timeline is not None else None
        if state is None:
            raise _error(errno.ENOENT, path)
        if state.errno is not None:
            raise _error(state.errno, path)
        return state

    def _only_like(self, wanted: Query) -> _Timeline | None:
        """The answers to the only similar query in the recording; None if several are similar.

        A newer coach may pass other arguments than the coach that recorded. The old answer brings its own
        query, so that it is parsed with the separators of that query.

        A query for one user's jobs (`-u`) is not similar to a query for all jobs. But if the recording holds
        only one of them, it answers both.
        """
        found = {words: timeline for (kind, words), timeline in self._answers.items() if kind == wanted.kind}
        alike = [timeline for words, timeline in found.items() if ("-u" in words) == ("-u" in wanted.argv)]
        likely = alike or list(found.values())
        return likely[0] if len(likely) == 1 else None

    def _add_answer(self, entry: Entry, by_id: dict[int, CommandResult]) -> None:
        if entry["k"] == "run":
            query = Query(entry["kind"], tuple(entry["argv"]), entry["sep"], entry["end"])
            stdout = decode_bytes(entry["out"])
            by_id[entry["id"]] = CommandResult(
                query, entry.get("rc"), stdout, entry["err"], entry["t"], entry["dur"], entry.get("error")
            )
            result = by_id[entry["id"]]
        else:
            result = replace(by_id[entry["of"]], time_s=entry["t"], duration_s=entry["dur"])
        query = result.query
        self._answers.setdefault((query.kind, query.words), _Timeline()).add(entry["t"], result)

    def _add_path_entry(self, entry: Entry) -> None:
        kind, path, time_s = entry["k"], entry["path"], entry["t"]
        if kind == "dir":
            self._dirs.setdefault(path, _Timeline()).add(time_s, entry["names"])
        elif kind == "mtime":
            self._modified.setdefault(path, _Timeline()).add(time_s, entry["s"])
        elif kind == "miss" and entry["op"] == "dir":
            self._dirs.setdefault(path, _Timeline()).add(time_s, entry.get("errno") or errno.EIO)
        else:
            timeline = self._files.setdefault(path, _Timeline())
            last: _FileState | None = timeline.values[-1] if timeline.values else None
            timeline.add(time_s, _next_state(last, entry))


def _next_state(last: _FileState | None, entry: Entry) -> _FileState:
    kind = entry["k"]
    if kind == "miss":
        return _FileState(_Content(), 0, 0, entry.get("errno") or errno.EIO)
    if kind == "size":
        return _FileState(_Content(), 0, entry["n"])
    if kind == "new" or last is None:
        last = _FileState(_Content(), 0, 0)
    if kind == "bytes":
        last.content.data.extend(decode_bytes(entry["data"]))
        length = len(last.content.data)
        return _FileState(last.content, length, length)
    return last


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
