"""Share Slurm's answers between all coaches of a user: several coaches cost as much as one.

Users leave coach open in three terminals on two login nodes. So each answer is stored unchanged, with its
time, in a folder that only its user can enter, and a coach that would send the same request soon after uses
it. One coach sends the request at a time; the others wait for its answer. A torn or old answer, and one of
another request or schema, is ignored. The folder is a cache and may be removed at any moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import threading
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from coach.runs import LockFile, has_lost_its_owner
from coach.sources.io import COMMAND_TIMEOUT_S, CommandResult, Io, OutputReader, PassingIo, Query
from coach.trusted import open_trusted, private_folder

SCHEMA = 1
MAX_BYTES = 64 << 20
"""A larger answer is not shared, because the folder may be in memory."""

FIRST_AGES_S: Mapping[str, float] = MappingProxyType(
    {"jobs": 10.0, "nodes": 60.0, "partitions": 120.0, "config": 3600.0}
)
"""Kind of a shared request → largest age in seconds of an answer for a coach that has none yet."""

PROBE_KEPT_S = 18.0
"""Seconds for which all coaches use a probe that found no controller. A probe that found one is not shared: a
coach probes only after a failure, which may be newer than that probe."""
_PROBE = "ping"

_SHARE_OF_PAUSE = 0.9
"""The largest age of another coach's answer, as a share of the time since this coach last used one."""

FAILURE_AGE_S = 4.0
"""Seconds for which a failure is valid for all coaches; after that, the next coach tries again."""

LOCK_SLACK_S = 3.0
"""A lock was left behind if a waiter has seen it for the time limit of a command plus these seconds. If its
owner was a process of this machine, the waiter knows at once that it has ended."""

_MAX_AHEAD_S = 2.0
"""The clocks of login nodes differ a little; an answer from further in the future is ignored."""
_LOCK_CHECK_S = 0.1
_MAX_HEAD_BYTES = 1 << 20


def shared_folder(env: Mapping[str, str], cache_dir: Path) -> Path | None:
    """The folder for this user's answers: in memory if the machine has such a folder, else in coach's cache.
    None: no folder is safe."""
    runtime = env.get("XDG_RUNTIME_DIR")
    for parent in (Path(runtime) / "coach" if runtime else None, cache_dir / "answers"):
        if parent is not None and _is_private(parent):
            return parent
    return None


def _is_private(folder: Path) -> bool:
    """True if only this user can change what is in the folder; creates it if possible."""
    try:
        private_folder(folder)
        return os.access(folder, os.W_OK)
    except (OSError, ValueError):
        return False


class SharedIo(PassingIo):
    """Wraps an Io: a recent answer to any coach of the user serves requests of the shared kinds.

    `context` names the cluster that is asked; two requests are the same only if it is equal. All other
    requests pass through.
    """

    def __init__(self, io: Io, folder: Path, context: str, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        """`timeout_s` is the time limit of a request."""
        super().__init__(io)
        self._lock_life_s = timeout_s + LOCK_SLACK_S
        self._folder = folder
        self._context = context
        self._told_s: dict[Path, float] = {}
        """Answer's file → when this coach last used it."""
        self._not_before_s = 0.0
        self._is_closed = threading.Event()

    def refuse_older(self) -> None:
        """Ignore all earlier answers, because something was changed just now."""
        self._not_before_s = self._io.now()

    def close(self) -> None:
        """Stop waiting for other coaches."""
        self._is_closed.set()

    def heard_probe(self, query: Query) -> CommandResult | None:
        """The recent probe of another coach, if it found no controller."""
        return self._fresh(self._file_of(query), query, PROBE_KEPT_S)

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        file = self._file_of(query)
        if query.kind == _PROBE:
            return self._shared(file, query, PROBE_KEPT_S, timeout_s)
        if query.kind not in FIRST_AGES_S:
            return self._io.run(query, timeout_s)
        told_s = self._told_s.get(file)
        max_age_s = (
            FIRST_AGES_S[query.kind]
            if told_s is None
            else max(0.0, _SHARE_OF_PAUSE * (self._io.now() - told_s))
        )
        result = self._shared(file, query, max_age_s, timeout_s)
        self._told_s[file] = self._io.now()
        return result

    def _shared(self, file: Path, query: Query, max_age_s: float, timeout_s: float | None) -> CommandResult:
        lock = LockFile(file.with_name(f".{file.name}.lock"))
        seen_s, seen = 0.0, None
        while not self._is_closed.is_set():
            kept = self._fresh(file, query, max_age_s)
            if kept is not None:
                return kept
            try:
                is_mine = lock.make()
                if not is_mine:
                    seen_s, seen = self._break_stale(lock, seen_s, seen)
            except OSError:
                break  # the folder is gone or its disk is full: nothing is shared
            if is_mine:
                try:
                    # The previous owner of the lock may have stored an answer since the last look.
                    return self._fresh(file, query, max_age_s) or self._ask(file, query, timeout_s)
                finally:
                    with contextlib.suppress(OSError):
                        lock.release()
            self._is_closed.wait(_LOCK_CHECK_S)
        return self._io.run(query, timeout_s)

    def _break_stale(
        self, lock: LockFile, seen_s: float, seen: tuple[int, int] | None
    ) -> tuple[float, tuple[int, int] | None]:
        """Break another coach's lock if it was left behind. Takes and returns when this lock was first seen,
        and its identity."""
        now = lock.identity()
        if now != seen:
            seen_s, seen = time.monotonic(), now
        is_old = time.monotonic() - seen_s > self._lock_life_s
        if seen is not None and (is_old or has_lost_its_owner(lock.path)):
            lock.break_(seen)
        return seen_s, seen

    def _file_of(self, query: Query) -> Path:
        return self._folder / f"{query.kind}-{self._digest(query)}"

    def _digest(self, query: Query) -> str:
        """Hash of the request without its random separators, and of the cluster."""
        return hashlib.sha256(
            "\0".join((self._context, *query.words)).encode("utf-8", "surrogateescape")
        ).hexdigest()[:24]

    def _ask(self, file: Path, query: Query, timeout_s: float | None) -> CommandResult:
        tee = _Tee(query.reader) if query.reader is not None else None
        result = self._io.run(replace(query, reader=tee), timeout_s)
        told: list[bytes] | None = [result.stdout] if len(result.stdout) <= MAX_BYTES else None
        if isinstance(result.query.reader, _Tee):  # for a late answer, the tee of the earlier request
            told = result.query.reader.pieces if result.is_read else told
            result = replace(result, query=replace(result.query, reader=result.query.reader.inner))
        if told is not None and not self._is_closed.is_set():
            with contextlib.suppress(OSError):
                _write(file, _head_of(result, told), told)
        return result

    def _fresh(self, file: Path, query: Query, max_age_s: float) -> CommandResult | None:
        try:
            with open_trusted(file, owner=os.geteuid()) as kept:
                head = _decode_head(kept.readline(_MAX_HEAD_BYTES), query)
                # If the answer is too old, only its first line is read.
                if head is None or not self._is_fresh(head.result, max_age_s):
                    return None
                stdout = kept.read(MAX_BYTES + 1)
        except OSError:
            return None
        if len(stdout) != head.num_bytes or zlib.crc32(stdout) != head.checksum:
            return None
        return replace(head.result, stdout=stdout)

    def _is_fresh(self, result: CommandResult, max_age_s: float) -> bool:
        if result.query.kind == _PROBE:
            max_age_s = PROBE_KEPT_S if result.returncode != 0 else 0.0
        elif result.returncode != 0:
            max_age_s = min(max_age_s, FAILURE_AGE_S)
        is_told_since = result.time_s - result.duration_s >= self._not_before_s
        return is_told_since and -_MAX_AHEAD_S <= self._io.now() - result.time_s < max_age_s


class _Tee:
    """Stores the pieces of an answer while another reader parses them, unless it becomes too large to be
    shared."""

    def __init__(self, inner: OutputReader) -> None:
        self.inner = inner
        self.pieces: list[bytes] | None = []
        self._num_bytes = 0

    def feed(self, piece: bytes) -> None:
        self._num_bytes += len(piece)
        if self.pieces is not None:
            self.pieces.append(piece)
            if self._num_bytes > MAX_BYTES:
                self.pieces = None
        self.inner.feed(piece)

    @property
    def is_torn(self) -> bool:
        return self.inner.is_torn


def _head_of(result: CommandResult, told: Iterable[bytes]) -> bytes:
    """The first line of the file; `told` is the rest."""
    query, num_bytes, checksum = result.query, 0, 0
    for piece in told:
        num_bytes, checksum = num_bytes + len(piece), zlib.crc32(piece, checksum)
    head = {
        "schema": SCHEMA,
        "argv": query.argv,
        "separator": query.separator,
        "record_end": query.record_end,
        "returncode": result.returncode,
        "stderr": result.stderr,
        "error": result.error,
        "time_s": result.time_s,
        "duration_s": result.duration_s,
        "num_bytes": num_bytes,
        "checksum": checksum,
    }
    return json.dumps(head).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class _Head:
    """The first line: the result without its output, and the length and checksum of the output."""

    result: CommandResult
    num_bytes: int
    checksum: int


def _decode_head(line: bytes, query: Query) -> _Head | None:
    """None if the line is torn, or was not written by a coach of this schema."""
    try:
        head = json.loads(line)
        if head["schema"] != SCHEMA or not line.endswith(b"\n"):
            return None
        argv = tuple(str(word) for word in head["argv"])
        asked = Query(query.kind, argv, str(head["separator"]), str(head["record_end"]))
        returncode, error = head["returncode"], head["error"]
        result = CommandResult(
            asked,
            None if returncode is None else int(returncode),
            b"",
            str(head["stderr"]),
            float(head["time_s"]),
            float(head["duration_s"]),
            None if error is None else str(error),
        )
        return _Head(result, int(head["num_bytes"]), int(head["checksum"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _write(file: Path, head: bytes, told: Iterable[bytes]) -> None:
    """Write the file atomically, readable for its owner only. It is not synced to the disk: after a crash of
    the machine it would be outdated anyway."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
            out.write(head)
            out.writelines(told)
        temporary.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
