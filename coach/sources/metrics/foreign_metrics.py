"""Read the metrics of a training without coach: TensorBoard events, wandb's and MLflow's local files, CSV,
JSON lines and `trainer_state.json`.

A training often writes the same numbers to several files, and each rank or restart writes files of its own.
coach follows one of them, the newest of the best format, as long as it exists. Several files together would
be a curve that nobody trained.
"""

from __future__ import annotations

import csv
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from coach.model.reading import MetricsChunk, Reading
from coach.model.training.metrics import MetricEvent, Step
from coach.sources.follow import FileFollower, RecordFollower, describe
from coach.sources.io import Io
from coach.sources.metrics.mlflow_database import MlflowDatabase, file_of
from coach.sources.metrics.mlflow_folder import MlflowFolder
from coach.sources.metrics.quantities import Course
from coach.sources.metrics.tensorboard_events import EventsDecoder, Scalar
from coach.sources.metrics.wandb_file import WandbDecoder

INTERVAL_S = 10.0
MAX_STATE_BYTES = 64 << 20
_MAX_LINE_BYTES = 1 << 20
_STALE_S = 60.0
"""If a file was last written this many seconds before another one of its format, it belongs to an earlier
attempt, not to another rank."""
_NUM_FIRST_ROWS = 8
"""Number of first rows by which a rewritten file is distinguished from that of another attempt."""
_MAX_ROWS_PER_BITE = 512
"""Largest number of rows per bite while much of a file is unread; the last bite is read completely."""
_NOT_FINITE = frozenset(
    f"{sign}{word}" for sign in ("", "+", "-") for word in ("nan", "NaN", "inf", "Inf", "Infinity")
)
_TASK_METRICS = ("metrics/mAP50-95(B)", "metrics/mAP_0.5:0.95")
"""Columns of `results.csv` of ultralytics and YOLOv5. There the losses below `train/` and below `val/` are
parts: the loss of the model is their sum (`v8DetectionLoss` in ultralytics/utils/loss.py)."""
_CHECKPOINT = re.compile(r"checkpoint-\d+")

Record = Mapping[str, Any]
_News = tuple[list[Step], list[MetricEvent]]


class _Reader(ABC):
    """Reads the new records of one place; `is_caught_up`, `num_bad` and `is_restart` describe the last
    look."""

    def __init__(self) -> None:
        self.course = Course()
        self.is_caught_up = True
        self.num_bad = 0
        self.is_restart = False
        """True if the records are of a new attempt, which replaced the file of the earlier one."""

    def read(self, path: Path) -> _News:
        """New steps and events in the newest file of the place. Raises OSError."""
        self.is_restart = False
        steps: list[Step] = []
        events: list[MetricEvent] = []
        for record in self._records(path):
            new_steps, new_events = self.course.take(record)
            steps += new_steps
            events += new_events
        return steps, events

    def pass_over(self) -> None:
        """Note a look at which nothing was read."""
        self.num_bad, self.is_restart = 0, False

    @abstractmethod
    def _records(self, path: Path) -> Iterable[Record]: ...

    def _begin_attempt(self) -> None:
        """Note that the next records are of another attempt."""
        has_loss, self.course, self.is_restart = self.course.has_loss, Course(), True
        self.course.has_loss = has_loss


class _EventsReader(_Reader):
    def __init__(self, io: Io, path: Path) -> None:
        super().__init__()
        self._follower, self._decoder = FileFollower(io, path), EventsDecoder()

    def _records(self, path: Path) -> Iterable[Record]:
        bite = self._follower.read()
        if bite.is_restart:
            self._decoder = EventsDecoder()
            self._begin_attempt()
        num_before = self._decoder.num_bad
        scalars = self._decoder.feed(bite.data)
        self.is_caught_up, self.num_bad = bite.is_caught_up, self._decoder.num_bad - num_before
        return records_of(scalars)


class _WandbReader(_Reader):
    def __init__(self, io: Io, path: Path) -> None:
        super().__init__()
        self._follower, self._decoder = FileFollower(io, path), WandbDecoder()

    def _records(self, path: Path) -> Iterable[Record]:
        bite = self._follower.read()
        if bite.is_restart:
            self._decoder = WandbDecoder()
            self._begin_attempt()
        num_before = self._decoder.num_bad
        records = self._decoder.feed(bite.data)
        self.is_caught_up, self.num_bad = bite.is_caught_up, self._decoder.num_bad - num_before
        return records


class _MlflowFolderReader(_Reader):
    """Reads a run of MLflow's file store. `path` is its `meta.yaml`; the metrics are in the same folder."""

    def __init__(self, io: Io, path: Path) -> None:
        super().__init__()
        self._folder = MlflowFolder(io, path.parent)
        self._names: tuple[str, ...] = ()

    def _records(self, path: Path) -> Iterable[Record]:
        records = records_of(self._folder.read())
        self.is_caught_up, self.num_bad = self._folder.is_caught_up, self._folder.num_bad
        if records and self._folder.names != self._names:
            self._names = self._folder.names
            records[0] = {**dict.fromkeys(self._names), **records[0]}
        return records


class _MlflowDatabaseReader(_Reader):
    """Reads a run of MLflow's database. A path with another run is a later attempt of the training."""

    def __init__(self, io: Io, path: Path) -> None:
        super().__init__()
        self._io = io
        self._path, self._database = path, MlflowDatabase(io, path)

    def _records(self, path: Path) -> Iterable[Record]:
        if path != self._path:
            self._path, self._database = path, MlflowDatabase(self._io, path)
            self._begin_attempt()
        records = records_of(self._database.read())
        self.is_caught_up, self.num_bad = self._database.is_caught_up, self._database.num_bad
        return records


class _CsvReader(_Reader):
    def __init__(self, io: Io, path: Path) -> None:
        super().__init__()
        self._follower, self._rest = FileFollower(io, path), b""
        self._columns: list[str] = []
        self._num_taken = self._num_read = 0
        self._first: list[dict[str, str]] = []

    def _records(self, path: Path) -> Iterable[Record]:
        bite = self._follower.read()
        if bite.is_restart:
            # Lightning rewrites the file when a column is added: the same rows, then new ones. Another
            # attempt has other rows.
            self._rest, self._columns, self._num_read = b"", [], 0
        whole, newline, self._rest = (self._rest + bite.data).rpartition(b"\n")
        self._rest = self._rest[:_MAX_LINE_BYTES]
        self.is_caught_up = bite.is_caught_up
        rows = parse_rows((whole + newline).decode("utf-8", "replace"))
        if rows and not self._columns:
            self._columns = rows.pop(0)
        if not self._go_on(rows):
            self._num_taken = 0
            self._begin_attempt()
        start, self._num_read = self._num_read, self._num_read + len(rows)
        new = rows[max(0, self._num_taken - start) :]
        self._num_taken = max(self._num_taken, self._num_read)
        new = new if bite.is_caught_up else thinned(new)
        self.num_bad = sum(1 for row in new if len(row) != len(self._columns))
        return [record_of(self._columns, row) for row in new if len(row) == len(self._columns)]

    def _go_on(self, rows: Sequence[Sequence[str]]) -> bool:
        """True if the file's first rows, as far as these rows include them, have not changed."""
        start = self._num_read
        first = [self._said_by(row) for row in rows[: max(0, _NUM_FIRST_ROWS - start)]]
        known = self._first[start : start + len(first)]
        is_same = all(old.items() <= new.items() for old, new in zip(known, first, strict=False))
        self._first = self._first[:start] + first + (self._first[start + len(first) :] if is_same else [])
        return is_same

    def _said_by(self, row: Sequence[str]) -> dict[str, str]:
        """The row as text, because NaN does not equal itself."""
        said = record_of(self._columns, row) if len(row) == len(self._columns) else {}
        return {name: str(value) for name, value in said.items()}


class _LinesReader(_Reader):
    def __init__(self, io: Io, path: Path) -> None:
        super().__init__()
        self._follower = RecordFollower(io, path)

    def _records(self, path: Path) -> Iterable[Record]:
        bite = self._follower.read()
        self.is_caught_up, self.num_bad = bite.is_caught_up, bite.num_bad
        if bite.is_restart:
            self._begin_attempt()
        return bite.records


class _StateReader(_Reader):
    """`trainer_state.json`: each checkpoint contains it completely, with everything logged so far."""

    def __init__(self, io: Io, path: Path) -> None:
        super().__init__()
        self._io = io
        self._seen: tuple[Path, int, float] | None = None
        self._num_taken = 0

    def _records(self, path: Path) -> Iterable[Record]:
        seen = (path, self._io.size(path), self._io.modified_s(path))
        self.num_bad = 0
        if seen == self._seen:
            return []
        records = parse_trainer_state(self._io.read(path, 0, MAX_STATE_BYTES))
        if records is None:
            self.num_bad = 1
            return []
        self._seen = seen
        start = self._num_taken
        if len(records) < start:
            self._begin_attempt()
            start = 0
        self._num_taken = len(records)
        return records[start:]


_FORMATS: tuple[tuple[re.Pattern[str], Callable[[Io, Path], _Reader]], ...] = (
    (re.compile(r"events\.out\.tfevents\."), _EventsReader),
    (re.compile(r"\.wandb$"), _WandbReader),
    (re.compile(r"(?:^|/)meta\.yaml$"), _MlflowFolderReader),
    (re.compile(r"(?:^|/)mlflow\.db(?:/\w+)?$"), _MlflowDatabaseReader),
    (re.compile(r"\.jsonl$|(?:^|/)scalars\.json$|\.log\.json$"), _LinesReader),
    (re.compile(r"\.[ct]sv$"), _CsvReader),
    (re.compile(r"\.json$"), _StateReader),
)
"""(pattern of the name, reader), best format first: a program that writes both events and a state writes each
step into the events."""


class ForeignMetricsSource:
    """Follows the metrics of one foreign target. `files` is called at each look, because the files appear
    only after the training has begun."""

    name = "metrics"
    interval_s = INTERVAL_S

    def __init__(self, io: Io, target: str, files: Callable[[], Sequence[Path]]) -> None:
        self._io = io
        self._target = target
        self._files = files
        self._paths: tuple[Path, ...] = ()
        self._places: dict[Path, Path] = {}
        self._problem: OSError | None = None
        """Why a file was left out at the last look at all of them."""
        self._chosen: tuple[Path, _Reader] | None = None
        self._news_s = self._io.now()

    @property
    def has_loss(self) -> bool:
        """True once the followed file has contained a training loss."""
        return self._chosen is not None and self._chosen[1].course.has_loss

    def poll(self) -> Iterable[Reading]:
        start_s = self._io.now()
        steps: list[Step] = []
        events: list[MetricEvent] = []
        error: str | None = None
        before = self._chosen
        try:
            paths = tuple(self._files())
            is_silent = not 0 <= start_s - self._news_s < _STALE_S
            if self._chosen is None or paths != self._paths or is_silent:
                steps, events = self._choose(paths)
                self._paths = paths
            else:
                steps, events = self._read_on(*self._chosen)
        except OSError as problem:
            error = describe(problem)
        now_s = self._io.now()
        reader_now = self._chosen[1] if self._chosen else None
        if steps or events or _is_other(before, self._chosen):
            self._news_s = now_s
        is_restart = _is_other(before, self._chosen) or (reader_now is not None and reader_now.is_restart)
        chunk = MetricsChunk(self._target, tuple(steps), tuple(events), is_restart)
        yield Reading(
            self.name,
            now_s,
            now_s - start_s,
            chunk if error is None else None,
            error,
            self._target,
            reader_now.num_bad if reader_now else 0,
            reader_now is None or reader_now.is_caught_up or error is not None,
        )

    def _choose(self, paths: Iterable[Path]) -> _News:
        """Follow the first file with a training loss, else the first file with any record. The followed file
        is tried before others of its format.

        Raises OSError if no file can be read.
        """
        self._find_places(paths)
        place_now, reader_now = self._chosen if self._chosen is not None else (None, None)
        second: tuple[Path, _Reader, _News] | None = None
        for place, path in sorted(
            self._places.items(), key=lambda item: (_order_of(item[1]), item[0] != place_now)
        ):
            if place == place_now and reader_now is not None:
                if reader_now.course.has_loss:
                    return self._read_later_attempt(path) or self._read_on(place, reader_now)
                continue
            reader, news = self._read_anew(path)
            if reader.course.has_loss:
                self._chosen = place, reader
                return news
            if second is None and any(news):
                second = place, reader, news
        if second is not None and place_now not in self._places:
            self._chosen = second[:2]
            return second[2]
        if self._chosen is not None:
            return self._read_on(*self._chosen)
        if self._problem is not None:
            raise self._problem
        return [], []

    def _read_on(self, place: Path, reader: _Reader) -> _News:
        """The news of the followed place; none while its file is missing.

        The training may have removed a checkpoint: the next one holds the same records.
        """
        reader.pass_over()
        try:
            return reader.read(self._places[place]) if place in self._places else ([], [])
        except FileNotFoundError:
            return [], []

    def _find_places(self, paths: Iterable[Path]) -> None:
        """Set for each place its newest file of the best format."""
        found: list[tuple[int, float, Path]] = []
        self._problem = None
        for path in paths:
            try:
                found += [(order, -self._io.modified_s(file_of(path)), path) for order in _order_of(path)]
            except OSError as error:
                self._problem = self._problem or error
        self._places = {}
        for _, _, path in sorted(found):
            self._places.setdefault(_place_of(path), path)

    def _read_anew(self, path: Path) -> tuple[_Reader, _News]:
        """Read a file from its beginning. One that cannot be read has no news."""
        reader = _FORMATS[_order_of(path)[0]][1](self._io, path)
        try:
            return reader, reader.read(path)
        except OSError as error:
            self._problem = self._problem or error
            return reader, ([], [])

    def _read_later_attempt(self, followed: Path) -> _News | None:
        """A requeued training writes a new file: follow the newest file of the same format once it contains a
        loss."""
        stale_s = self._io.modified_s(file_of(followed)) + _STALE_S
        for place, path in self._places.items():
            if _order_of(path) != _order_of(followed) or self._io.modified_s(file_of(path)) < stale_s:
                continue
            reader, news = self._read_anew(path)
            if reader.course.has_loss:
                self._chosen = place, reader
                return news
        return None


def _is_other(before: tuple[Path, _Reader] | None, after: tuple[Path, _Reader] | None) -> bool:
    """True if the followed place has changed."""
    return before is not None and after is not None and before[0] != after[0]


def records_of(scalars: Iterable[Scalar]) -> list[Record]:
    """Join consecutive scalars of one step into one record."""
    records: list[Record] = []
    for step, group in groupby(scalars, lambda scalar: scalar.step):
        together = list(group)
        tags = {scalar.tag: scalar.value for scalar in together}
        records.append({**tags, "step": step, "time_s": together[-1].time_s})
    return records


def parse_rows(text: str) -> list[list[str]]:
    """The rows of a CSV or TSV file; malformed rows are left out."""
    delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
    rows: list[list[str]] = []
    reader = csv.reader(text.splitlines(), delimiter=delimiter)
    while True:
        try:
            row = next(reader, None)
        except csv.Error:
            continue
        if row is None:
            return rows
        if row:
            rows.append(row)


def thinned(rows: Sequence[list[str]]) -> list[list[str]]:
    """Evenly chosen rows, as many as a curve needs, and in addition the first rows with a number that is not
    finite."""
    stride = -(-len(rows) // _MAX_ROWS_PER_BITE) or 1
    broken = (n for n, row in enumerate(rows) if not _NOT_FINITE.isdisjoint(row))
    kept = {*range(0, len(rows), stride), *islice(broken, _MAX_ROWS_PER_BITE)}
    return [rows[n] for n in sorted(kept)]


def record_of(columns: Sequence[str], row: Sequence[str]) -> Record:
    """One row as a record; cells that are empty or not a number are left out. Parts of a loss are summed."""
    record: dict[str, float] = {}
    for name, cell in zip(columns, row, strict=True):
        try:
            record[name.strip()] = float(cell)
        except ValueError:
            continue
    for metric in record.keys() & _TASK_METRICS:
        for group in ("train/", "val/"):
            record[f"{group}loss"] = sum(value for name, value in record.items() if name.startswith(group))
        record["val/accuracy"] = record[metric]
    return record


def parse_trainer_state(data: bytes) -> list[Record] | None:
    """The `log_history` of transformers' Trainer; None while the file is incomplete."""
    try:
        state = json.loads(data)
    except (ValueError, RecursionError):
        return None
    history = state.get("log_history") if isinstance(state, dict) else None
    return [record for record in history if isinstance(record, dict)] if isinstance(history, list) else None


def _order_of(path: Path) -> tuple[int, ...]:
    """The index of the file's format, best first; () for an unknown format."""
    return tuple(order for order, (name, _) in enumerate(_FORMATS) if name.search(str(path)))[:1]


def _place_of(path: Path) -> Path:
    """The place of a file. The states in all checkpoints are one place, and so are all runs of a database."""
    if (file := file_of(path)) != path:
        return file
    return path.parent.parent / path.name if _CHECKPOINT.fullmatch(path.parent.name) else path
