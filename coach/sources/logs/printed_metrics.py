"""Read the numbers that a user's own program prints.

Only the first log that contains a loss is followed: two streams with the same numbers would be a curve that
nobody trained. Lines that name their rank (`[rank2] step 10 loss 0.1`) make one curve for each rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from coach.model.training.metrics import MetricEvent, Step
from coach.sources.follow import FileFollower
from coach.sources.io import Io
from coach.sources.logs.columns import Columns, is_header
from coach.sources.logs.line_text import ANSI
from coach.sources.logs.printed_numbers import (
    ANEW,
    FUNCTION_WORDS,
    LOSS_WORDS,
    SPEED_OR_LOSS_WORDS,
    LineNumbers,
    may_have_speeds,
    training_loss_of,
)
from coach.sources.metrics.quantities import Course

_MAX_LINES = 1024
"""Largest number of lines read per bite, evenly chosen: a curve needs no more, and a progress bar prints ten
a second."""
_MANY_LINES = 2 * _MAX_LINES
_MAX_RANKS = 64
"""Largest number of ranks whose lines are read."""
_MAX_LINE_BYTES = 1 << 16
_FEW = 2
"""A loss with at most this many values is dropped once another loss has more."""
_MAX_ROW_BYTES = 4096
_MAY_BE_HEADER = re.compile(rb"[^:={}]{0,1000}(?:loss|Loss|LOSS)[^:={}]{0,1000}\Z")
_VALUE = re.compile(rb"[\s|,][-+]?\d")
"""A number that stands for itself: no header has one. It is found long before the end of a line."""
_RANK_CHARS = 100
"""Number of bytes at the start of a line that are searched for its rank: a time may stand before it."""
_RANK = re.compile(
    rb"[\[(<](?:global[ _])?rank[ :=#]{0,2}(\d{1,5})(?:/\d{1,5})?[\])>]"
    rb"|^\s{0,4}rank[ :=#]{0,2}(\d{1,5})(?=[\s:,|])",
    re.IGNORECASE,
)
"""`[rank2]`, `(Rank 2/8)`, `Rank: 2, Epoch: 1`."""
_HEADING = re.compile(
    rb"(?:[\d-]{10} [\d:.]{8,15}: )?(Epoch \d{1,9}(?:/\d{1,9})?|\[batch=\d{1,9}/\d{1,9}\](?=:))[:\s]*"
)
"""The line above the numbers of an epoch or a step: `Epoch 1/5` (Keras), `2025-11-19 00:07:35.259727: Epoch
72` (nnU-Net), `[batch=12/500]:` (Composer)."""
_BELOW_HEADING = re.compile(rb"[\d-]{10} [\d:.]{8,15}: (?:train|val)_loss |\s{1,9}Train (?:loss|throughput)/")
"""A line of nnU-Net or Composer."""
_HEADED = re.compile(rb"\s{0,9}(?P<n>\d{1,9})/(?P<total>\d{1,9}) ")
_ENDS = re.compile(rb"[\r\n]+")
_FOREIGN_END_BYTES = 64 << 20
"""The part of a foreign job's log that is read for its numbers. The log is read as a whole only once, for the
rules."""


def end_of_log(io: Io, path: Path) -> int:
    """The place in a long log at which its last part begins; 0 for a shorter one or a missing one."""
    try:
        return max(0, io.size(path) - _FOREIGN_END_BYTES)
    except OSError:
        return 0


class PrintedMetrics:
    """Follows the first log of a run that contains a loss; until then all of its logs."""

    def __init__(self, io: Io, logs: Callable[[], Sequence[Path]], start_of: Callable[[Path], int]) -> None:
        """`start_of`: number of bytes in a log that were written before the run."""
        self.is_caught_up = True
        self.is_restart = False
        """True if what was read before the last look was another loss, or of another attempt."""
        self._io = io
        self._logs = logs
        self._start_of = start_of
        self._followers: dict[Path, FileFollower] = {}
        self._numbers: dict[Path, PrintedNumbers] = {}
        self._followed: Path | None = None
        self.num_steps = 0
        """Number of steps that were read so far."""

    @property
    def has_loss(self) -> bool:
        """True once a log has contained a training loss."""
        return self._followed is not None

    def read(self) -> tuple[list[Step], list[MetricEvent]]:
        """New steps and events in the logs. Raises OSError."""
        paths = self._logs() if self._followed is None else (self._followed,)
        steps: list[Step] = []
        events: list[MetricEvent] = []
        self.is_caught_up, self.is_restart = True, False
        for path in paths:
            follower = self._followers.setdefault(
                path, FileFollower(self._io, path, offset=self._start_of(path))
            )
            try:
                bite = follower.read()
            except FileNotFoundError:
                continue
            before = self._numbers.setdefault(path, PrintedNumbers())
            # Slurm empties the log of a requeued job.
            numbers = self._numbers[path] = PrintedNumbers() if bite.is_restart else before
            new_steps, new_events = numbers.take(bite.data)
            self.is_caught_up = self.is_caught_up and bite.is_caught_up
            is_anew = bite.is_restart and before.has_loss
            self.is_restart = self.is_restart or numbers.is_restart or is_anew
            steps += new_steps
            events += new_events
            self.num_steps += len(new_steps)
            if numbers.has_loss:
                self._followed = path
                break
        return steps, events


class PrintedNumbers:
    """The numbers of one log, which is taken in pieces."""

    def __init__(self) -> None:
        self.is_restart = False
        """True if what was taken before the last piece was another loss."""
        self._columns = Columns()
        self._num_read = 0
        """Number of lines that were read so far."""
        self._rest = b""
        self._curves: dict[int, _Curve] = {}
        """Rank → its numbers; those of lines without a rank are rank 0's."""
        self._heading = b""
        """The epoch of the next bars; empty if it is not known."""
        self._last_bar = (0, 0)
        """(place, length) of the last bar below the heading."""

    @property
    def has_loss(self) -> bool:
        return any(curve.course.has_loss for curve in self._curves.values())

    def take(self, data: bytes) -> tuple[list[Step], list[MetricEvent]]:
        """The steps and events of the lines that the piece completes."""
        self.is_restart = False
        data = self._rest + data
        lines = _ENDS.split(data) if b"\r" in data else data.split(b"\n")
        self._rest = lines.pop()[-_MAX_LINE_BYTES:]
        if self._has_many:
            lines = _thinned(lines, 4 * _MAX_LINES)
        lines = self._with_names([ANSI.sub(b"", line) if b"\x1b" in line else line for line in lines])
        return self._read_lines(lines)

    def _read_lines(self, lines: list[bytes]) -> tuple[list[Step], list[MetricEvent]]:
        steps: list[Step] = []
        events: list[MetricEvent] = []
        by_rank = self._by_rank(self._named(lines))
        most = self._most // max(1, len(by_rank))
        for rank in sorted(by_rank):
            curve = self._curves[rank]
            kept = _thinned(by_rank[rank], most)
            self._num_read += len(kept)
            new_steps, new_events = curve.read(kept)
            self.is_restart = self.is_restart or curve.is_restart
            steps += new_steps
            if rank == min(self._curves):  # the others print the same evaluation
                events += new_events
        return steps, events

    @property
    def _most(self) -> int:
        """Lines to read of a piece; fewer once many are known: a long log has a thousand pieces."""
        return _MAX_LINES // 5 if self._has_many else _MAX_LINES

    @property
    def _has_many(self) -> bool:
        """True once so many losses were read that a sample of the others shows their course."""
        return self._num_read >= _MANY_LINES and self.has_loss

    def _named(self, lines: list[bytes]) -> list[bytes]:
        """The lines that may name a loss; as long as none is known, also those that may name a speed."""
        named: list[bytes] = []
        words = SPEED_OR_LOSS_WORDS if not self.has_loss and may_have_speeds(lines) else LOSS_WORDS
        for line in lines:
            if words.search(line):
                named += self._with_heading(line) if self._heading else (line,)
            elif (heading := _HEADING.fullmatch(line)) is not None:
                self._heading, self._last_bar = heading[1], (0, 0)
        if any(map(LOSS_WORDS.search, named)) or any(curve.has_plain_loss for curve in self._curves.values()):
            return named
        by_function = [line for line in lines if FUNCTION_WORDS.search(line)]
        return by_function + [line for line in named if not FUNCTION_WORDS.search(line)]

    def _with_heading(self, line: bytes) -> tuple[bytes, ...]:
        """The line; a bar, or a line of nnU-Net or Composer, behind the heading above it. A bar of another
        length shows an evaluation and is left out. One that begins anew belongs to an epoch whose heading was
        not read."""
        bar = _HEADED.match(line)
        if bar is None:
            return (self._heading + b" |" + line if _BELOW_HEADING.match(line) else line,)
        (last, length), place, total = self._last_bar, int(bar["n"]), int(bar["total"])
        if length not in (0, total):
            return ()
        if place < last:
            self._heading = b""
            return (line,)
        self._last_bar = place, total
        return (self._heading + b" |" + line,)

    def _by_rank(self, lines: list[bytes]) -> dict[int, list[bytes]]:
        """Rank → its lines. Without a rank in the lines that are looked at, all are rank 0's."""
        found: dict[int, list[bytes]] = {}
        sample = _thinned(lines, self._most)
        for line in lines if any(map(_rank_of, sample)) else sample:
            rank = _rank_of(line)
            if rank in self._curves or len(self._curves) < _MAX_RANKS:
                self._curves.setdefault(rank, _Curve(rank))
                found.setdefault(rank, []).append(line)
        return found

    def _with_names(self, lines: list[bytes]) -> list[bytes]:
        """The lines, with the names of the header in the rows of a table."""
        if self._columns.is_open:
            start = 0
        else:
            start = next((number for number, line in enumerate(lines) if _may_begin_table(line)), len(lines))
        rows = (self._columns.read(_shown(line)) for line in lines[start:])
        named = (line if row is None else row.encode() for line, row in zip(lines[start:], rows, strict=True))
        return [*lines[:start], *named]


def _may_begin_table(line: bytes) -> bool:
    return not _VALUE.search(line) and _MAY_BE_HEADER.match(line) is not None and is_header(_shown(line))


def _shown(line: bytes) -> str:
    return line[:_MAX_ROW_BYTES].decode("utf-8", "replace")


def _rank_of(line: bytes) -> int:
    """The rank that a line names at its start; 0 for a line that names none."""
    head = line[:_RANK_CHARS]
    found = _RANK.search(head) if b"ank" in head or b"RANK" in head else None
    return int(next(filter(None, found.groups()))) if found is not None else 0


def _thinned(lines: list[bytes], most: int) -> list[bytes]:
    """At most `most` of the lines, evenly chosen."""
    return lines[:: -(-len(lines) // most) or 1]


class _Curve:
    """The numbers of one rank."""

    def __init__(self, rank: int) -> None:
        self.course = Course()
        self.is_restart = False
        self._rank = rank
        self._numbers = LineNumbers()
        self._name: str | None = None
        """The training loss that is followed."""
        self._num_followed = 0
        self._others: list[Mapping[str, float]] = []

    @property
    def has_plain_loss(self) -> bool:
        return self._numbers.has_plain_loss

    def read(self, lines: Sequence[bytes]) -> tuple[list[Step], list[MetricEvent]]:
        """The steps and events of these lines."""
        self.is_restart = False
        records = self._numbers.records(line.decode("utf-8", "replace") for line in lines)
        steps: list[Step] = []
        events: list[MetricEvent] = []
        for record in chain.from_iterable(map(self._chosen, records)):
            if ANEW in record:
                self.course, self.is_restart, steps, events = Course(), True, [], []
            told = {name: value for name, value in record.items() if name != ANEW}
            new_steps, new_events = self.course.take(told)
            steps += new_steps
            events += new_events
        if self._rank:
            steps = [replace(step, rank=self._rank) for step in steps]
            events = [replace(event, rank=self._rank) for event in events]
        return steps, events

    def _chosen(self, record: Mapping[str, float]) -> list[Mapping[str, float]]:
        """The records to read at this one. The first loss may be rarer than another one, as where an
        evaluation comes first: `step 0: train loss 4.2`, then `iter 0: loss 4.2`, `iter 10: loss 4.1`."""
        name = training_loss_of(record)
        if name is None:
            return [record]
        if self._name is None or ANEW in record:
            self._name, self._num_followed, self._others = name, 0, []
        if name == self._name:
            self._num_followed += 1
        elif self._num_followed <= _FEW and self._goes_on(name, record):
            self._others.append(record)
            if len(self._others) > _FEW:
                first, *later = self._others
                self._name, self._num_followed, self._others = name, len(later) + 1, []
                return [{**first, ANEW: 1.0}, *later]
        return [record]

    def _goes_on(self, name: str, record: Mapping[str, float]) -> bool:
        """True if a record continues the steps of the other loss."""
        if not self._others:
            return "step" in record
        last = self._others[-1]
        return name == training_loss_of(last) and record.get("step", -1.0) > last["step"]
