"""Read MLflow's database `mlflow.db`, in which newer versions store the metrics of all runs.

It is an SQLite file to which the training writes. A reader that opened it would lock it and block the
training. So it is read like any other file, and the copy in memory is queried. If a commit tore the copy, the
query fails, and the next look makes another copy.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from coach.sources.io import Io
from coach.sources.metrics.tensorboard_events import Scalar

NAME = "mlflow.db"
MAX_BYTES = 32 << 20
"""A larger database is shared by many users, and is too large to be read repeatedly."""
MAX_ROWS = 200_000
MAX_RUNS = 10_000
_BYTES_PER_S = 256 << 10
"""Average limit of bytes read per second: 1 MiB, MLflow's smallest database, every 4 s."""
_NUM_STEPS = 20_000_000
"""Limit of steps of SQLite's virtual machine for one answer, enough for hundreds of thousands of rows. The
tables of a hostile file may be endless views."""
_STEPS_PER_CALL = 100_000
_NOT_READ = (sqlite3.Error, UnicodeDecodeError)
"""UnicodeDecodeError is raised if SQLite quotes malformed names in its error."""
_MAGIC = b"SQLite format 3\0"
_MAX_NAME_BYTES = 1 << 12
_LARGEST = 1.7976931348623157e308
"""MLflow stores infinity as this number."""


@dataclass(frozen=True, slots=True)
class MlflowRun:
    """One run in the database. Times are epoch seconds."""

    run_id: str
    start_s: float
    end_s: float | None


class MlflowDatabase:
    """Reads new metrics of one run; `is_caught_up` and `num_bad` describe the last look."""

    def __init__(self, io: Io, path: Path) -> None:
        """`path` is the database file, or a run in it as returned by `path_of`."""
        self.is_caught_up = True
        self.num_bad = 0
        self._io = io
        self._path, self._run_id = split(path)
        self._last_row = 0
        self._seen: tuple[int, float] | None = None
        self._next_s = 0.0

    def read(self) -> list[Scalar]:
        """New scalars, in the order in which they were written. Raises OSError."""
        now_s, self.num_bad = self._io.now(), 0
        seen = (self._io.size(self._path), self._io.modified_s(self._path))
        if self.is_caught_up and (seen == self._seen or now_s < self._next_s):
            return []
        self._next_s = now_s + seen[0] / _BYTES_PER_S
        try:
            with _copy_of(self._io, self._path) as database:
                if self._run_id is None:
                    runs = runs_in(database)
                    self._run_id = runs[-1].run_id if runs else None
                rows = metrics_in(database, self._run_id, self._last_row) if self._run_id else []
        except _NOT_READ:
            self.num_bad = 1
            return []
        self._seen, self.is_caught_up = seen, len(rows) < MAX_ROWS
        self._last_row = rows[-1][0] if rows else self._last_row
        return [scalar for _, scalar in rows]


def path_of(database: Path, run_id: str) -> Path:
    """The path that stands for one run of a database."""
    return database / run_id


def split(path: Path) -> tuple[Path, str | None]:
    """The file, and the run that the path names in it; None if it names none."""
    return (path.parent, path.name) if path.parent.name == NAME else (path, None)


def file_of(path: Path) -> Path:
    """The file that contains the metrics of a path."""
    return split(path)[0]


def read_runs(io: Io, path: Path) -> list[MlflowRun]:
    """The runs with metrics, oldest first; empty if the database cannot be read now."""
    try:
        with _copy_of(io, path) as database:
            return runs_in(database)
    except (OSError, *_NOT_READ):
        return []


def runs_in(database: sqlite3.Connection) -> list[MlflowRun]:
    """The runs with metrics in an open database, oldest first. Raises sqlite3.Error."""
    rows = database.execute(
        "SELECT run_uuid, start_time, end_time FROM runs WHERE start_time IS NOT NULL"
        " AND run_uuid IN (SELECT run_uuid FROM latest_metrics) ORDER BY start_time DESC LIMIT ?",
        (MAX_RUNS,),
    ).fetchall()
    return [
        MlflowRun(run_id, start / 1000, end / 1000 if isinstance(end, int) else None)
        for run_id, start, end in reversed(rows)
        if isinstance(run_id, str) and run_id.isalnum() and isinstance(start, int)
    ]


def metrics_in(database: sqlite3.Connection, run_id: str, after_row: int) -> list[tuple[int, Scalar]]:
    """(row id, scalar) of each new metric, in the order of writing. Raises sqlite3.Error."""
    rows = database.execute(
        "SELECT rowid, key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? AND rowid > ?"
        " ORDER BY rowid LIMIT ?",
        (run_id, after_row, MAX_ROWS),
    )
    return [(row[0], scalar) for row in rows if (scalar := _scalar_of(*row[1:])) is not None]


def _scalar_of(key: Any, value: Any, timestamp: Any, step: Any, is_nan: Any) -> Scalar | None:
    if not isinstance(key, str) or not isinstance(value, int | float) or not isinstance(step, int):
        return None
    if not isinstance(timestamp, int):
        return None
    if is_nan:
        value = float("nan")
    elif abs(value) >= _LARGEST:
        value = float("inf") if value > 0 else -float("inf")
    return Scalar(key, float(value), step, timestamp / 1000)


@contextmanager
def _copy_of(io: Io, path: Path) -> Iterator[sqlite3.Connection]:
    """An in-memory copy. Raises OSError, or sqlite3.Error if the file is no database that can be read now."""
    data = io.read(path, 0, MAX_BYTES + 1)
    if not data.startswith(_MAGIC) or len(data) < 100:
        raise sqlite3.DatabaseError("no SQLite file")
    if len(data) > MAX_BYTES:
        limit = f"larger than {MAX_BYTES >> 20} MiB, which is too much to read again and again"
        raise OSError(errno.EFBIG, limit, str(path))
    # The copy has no write-ahead log, so only the content of the file itself is read.
    data = data[:18] + b"\x01\x01" + data[20:]
    database = sqlite3.connect(":memory:")
    try:
        database.deserialize(data)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(len(data), _MAX_NAME_BYTES))
        database.set_progress_handler(_limit(), _STEPS_PER_CALL)
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        database.execute("PRAGMA query_only = ON")
        database.text_factory = lambda text: text.decode("utf-8", "replace")
        yield database
    finally:
        database.close()


def _limit() -> Callable[[], bool]:
    """Returns a function that returns True once a query has run too long."""
    calls = count(1)
    return lambda: next(calls) > _NUM_STEPS // _STEPS_PER_CALL
