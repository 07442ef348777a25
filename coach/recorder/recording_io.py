"""An Io that records: it passes each query on and keeps the raw answer.

Unchanged data is kept once: a repeated answer refers to the earlier one, and of a file only new bytes are
kept. Hours of an idle cluster therefore stay small.
"""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coach.recorder.recording import Header, encode_bytes, write_header, write_line
from coach.sources.io import CommandResult, Io, PassingIo, Query
from coach.sources.machine.new_file import create

FLUSH_INTERVAL_S = 5.0
_HEAD_BYTES = 64 << 10
"""Bytes at the start of a file that are compared, to notice that it was rewritten."""


@dataclass(slots=True)
class _File:
    """The part of a file that the recording holds."""

    head: bytes = b""
    length: int = 0


class RecordingIo(PassingIo):
    """Wraps an Io and writes all its answers to `file`. Many threads may use it; close it at the end."""

    def __init__(self, io: Io, file: Path, header: Header) -> None:
        """Create the file, readable only by its owner. Raises OSError, also if it exists."""
        self.num_entries = 0
        self.num_bytes = 0
        """Number of raw bytes kept, before compression."""
        super().__init__(io)
        self._raw = create(file)  # open for as long as the recorder lives
        self._out = gzip.GzipFile(filename="", fileobj=self._raw, mode="wb", mtime=0)
        self._lock = threading.Lock()
        self._is_closed = False
        self._flushed_s = time.monotonic()
        self._answers: dict[str, tuple[int, str]] = {}
        self._num_answers = 0
        self._files: dict[str, _File] = {}
        self._facts: dict[tuple[str, str], Any] = {}
        write_header(self._out, header)

    def run(self, query: Query, timeout_s: float | None = None) -> CommandResult:
        # A recording keeps whole answers, so the query's incremental reader is dropped.
        result = self._io.run(replace(query, reader=None), timeout_s)
        done, out = result.query, encode_bytes(result.stdout)
        key = "\0".join((done.kind, *done.words))
        fingerprint = "\0".join(
            (str(result.returncode), done.without_separators(out), result.stderr, str(result.error))
        )
        with self._lock:
            known = self._answers.get(key)
            if known is not None and known[1] == fingerprint:
                self._write(result.time_s, "again", {"of": known[0], "dur": result.duration_s})
                return result
            self._num_answers += 1
            self._answers[key] = (self._num_answers, fingerprint)
            fields = {"id": self._num_answers, "kind": done.kind, "argv": list(done.argv)}
            fields |= {"sep": done.separator, "end": done.record_end, "rc": result.returncode}
            fields |= {"out": out, "err": result.stderr, "error": result.error, "dur": result.duration_s}
            self._write(result.time_s, "run", fields)
            self.num_bytes += len(result.stdout)
        return result

    def read(self, path: Path, offset: int, limit: int, owner: int | None = None) -> bytes:
        with self._noting_miss(path, "file"):
            data = self._io.read(path, offset, limit, owner)
        with self._lock:
            self._keep_bytes(str(path), offset, data, is_end=len(data) < limit)
        return data

    def size(self, path: Path, owner: int | None = None) -> int:
        with self._noting_miss(path, "file"):
            size = self._io.size(path, owner)
        with self._lock:
            file = self._files.get(str(path))
            if file is None or not file.length:
                self._fact("size", path, {"n": size})
            elif size < file.length:
                self._begin_anew(str(path))
        return size

    def modified_s(self, path: Path, owner: int | None = None) -> float:
        modified_s = self._io.modified_s(path, owner)
        with self._lock:
            self._fact("mtime", path, {"s": modified_s})
        return modified_s

    def list_dir(self, path: Path) -> list[str]:
        with self._noting_miss(path, "dir"):
            names = self._io.list_dir(path)
        with self._lock:
            self._fact("dir", path, {"names": names})
        return names

    def close(self) -> None:
        """Write the end. Later input is not recorded."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._out.close()
                self._raw.close()

    def _keep_bytes(self, path: str, offset: int, data: bytes, is_end: bool) -> None:
        file = self._files.setdefault(path, _File())
        overlap = file.head[offset : offset + len(data)]
        is_cut = is_end and offset + len(data) < file.length
        if data[: len(overlap)] != overlap or is_cut:
            file = self._begin_anew(path)
        if offset > file.length:
            return  # a gap after the recorded part: the source will read the file again from its start
        fresh = data[file.length - offset :]
        if fresh:
            self._facts.pop(("file", path), None)
            self._write(self._io.now(), "bytes", {"path": path, "data": encode_bytes(fresh)})
            self.num_bytes += len(fresh)
            file.length += len(fresh)
            file.head = (file.head + fresh)[:_HEAD_BYTES] if len(file.head) < _HEAD_BYTES else file.head

    def _begin_anew(self, path: str) -> _File:
        self._write(self._io.now(), "new", {"path": path})
        self._files[path] = _File()
        return self._files[path]

    @contextmanager
    def _noting_miss(self, path: Path, what: str) -> Iterator[None]:
        """Record an error of the file operation in the block, and raise it again."""
        try:
            yield
        except OSError as error:
            with self._lock:
                if what == "file" and str(path) in self._files:
                    self._files[str(path)] = _File()
                self._fact("miss", path, {"op": what, "errno": error.errno})
            raise

    def _fact(self, kind: str, path: Path, fields: dict[str, Any]) -> None:
        """Record a fact about a path only when it changes. Its facts as a file and as a directory are kept
        apart."""
        topic = {"size": "file", "dir": "dir", "mtime": "mtime"}.get(kind) or fields["op"]
        if self._facts.get((topic, str(path))) != (kind, fields):
            self._facts[(topic, str(path))] = (kind, fields)
            self._write(self._io.now(), kind, {"path": str(path), **fields})

    def _write(self, time_s: float, kind: str, fields: dict[str, Any]) -> None:
        if self._is_closed:
            return
        write_line(self._out, {"t": time_s, "k": kind, **fields})
        self.num_entries += 1
        if time.monotonic() - self._flushed_s >= FLUSH_INTERVAL_S:
            self._flushed_s = time.monotonic()
            self._out.flush()
