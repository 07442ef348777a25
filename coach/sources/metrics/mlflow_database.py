"""MLflow's database, `mlflow.db`, in which newer versions keep the metrics of all runs.

SQLite. The training writes to it, and a reader that opened it would lock it and hold up the training. So it
is read as a file, like any other, and the copy in memory is asked. A copy that a commit has torn gives no
answer, and the next look makes another one.
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
"""A larger one is shared by many, and too much to read again and again."""
MAX_ROWS = 200_000
MAX_RUNS = 10_000
_BYTES_PER_S = 256 << 10
"""So many are read in a second at most, on the average: 1 MiB, the least that MLflow writes, every 4 s."""
_NUM_STEPS = 20_000_000
"""Of SQLite's machine, within which an answer has to be there: hundreds of thousands of rows. The tables of a
hostile file may be views without an end."""
_STEPS_PER_CALL = 100_000
_NOT_READ = (sqlite3.Error, UnicodeDecodeError)
"""The second one is raised where SQLite quotes broken names in its error."""
_MAGIC = b"SQLite format 3\0"
_MAX_NAME_BYTES = 1 << 12
_LARGEST = 1.7976931348623157e308
"""MLflow's spelling of infinity."""


@dataclass(frozen=True, slots=True)
class MlflowRun:
    """One run that the database tells of. Times in epoch seconds."""

    run_id: str
    start_s: float
    end_s: float | None


class MlflowDatabase:
    """Reads new metrics of one run; `is_caught_up` tells of the last look."""

    def __init__(self, io: Io, path: Path) -> None:
        """`path` is of the file, or of a run in it as `path_of` spells it."""
        self.is_caught_up = True
        self.num_bad = 0
        self._io = io
        self._path, self._run_id = split(path)
        self._last_row = 0
        self._seen: tuple[int, float] | None = None
        self._next_s = 0.0

    def read(self) -> list[Scalar]:
        """What is new, in the order in which it was written. Raises OSError."""
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
    """How one run of a database is called where a file's path would stand."""
    return database / run_id


def split(path: Path) -> tuple[Path, str | None]:
    """The file, and the run in it that a path names."""
    return (path.parent, path.name) if path.parent.name == NAME else (path, None)


def file_of(path: Path) -> Path:
    """The file that holds the metrics which a path names."""
    return split(path)[0]


def read_runs(io: Io, path: Path) -> list[MlflowRun]:
    """The runs that have metrics, in the order in which they began. Empty where it cannot be read now."""
    try:
        with _copy_of(io, path) as database:
            return runs_in(database)
    except (OSError, *_NOT_READ):
        return []


def runs_in(database: sqlite3.Connection) -> list[MlflowRun]:
    """The runs of a database that have metrics, in the order in which they began. Raises sqlite3.Error."""
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
    """Rows with their numbers, as they were written. Raises sqlite3.Error."""
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
    """Raises OSError, or sqlite3.Error where the file is none that can be read now."""
    data = io.read(path, 0, MAX_BYTES + 1)
    if not data.startswith(_MAGIC) or len(data) < 100:
        raise sqlite3.DatabaseError("no SQLite file")
    if len(data) > MAX_BYTES:
        limit = f"larger than {MAX_BYTES >> 20} MiB, which is too much to read again and again"
        raise OSError(errno.EFBIG, limit, str(path))
    # A copy has no write-ahead log beside it: what stands in the file itself is read.
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
    """True once a database has worked for too long."""
    calls = count(1)
    return lambda: next(calls) > _NUM_STEPS // _STEPS_PER_CALL
