"""Read the numbers that a user's own program prints.

Only the first log that contains a loss is followed: two streams with the same numbers would be a curve that
nobody trained.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from coach.model.training.metrics import MetricEvent, Step
from coach.sources.follow import FileFollower
from coach.sources.io import Io
from coach.sources.logs.columns import Columns
from coach.sources.logs.line_text import ANSI
from coach.sources.logs.printed_numbers import (
    ANEW,
    FUNCTION_WORDS,
    LOSS_WORDS,
    LineNumbers,
    training_loss_of,
)
from coach.sources.metrics.quantities import Course

_MAX_LINES = 1024
"""Largest number of lines read per bite, evenly chosen: a curve needs no more, and a progress bar prints ten
a second."""
_MAX_LINE_BYTES = 1 << 16
_FEW = 2
"""A loss with so few values gives way to one that has more."""
_MAX_ROW_BYTES = 4096
_MAY_BE_HEADER = re.compile(rb"[^:={}]{0,1000}(?:loss|Loss|LOSS)[^:={}]{0,1000}\Z")
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
        """True if what was read before the last look was another loss."""
        self._io = io
        self._logs = logs
        self._start_of = start_of
        self._printed: dict[Path, _PrintedNumbers] = {}
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
            printed = self._printed.setdefault(path, _PrintedNumbers(self._io, path, self._start_of(path)))
            try:
                new_steps, new_events = printed.read()
            except FileNotFoundError:
                continue
            self.is_caught_up = self.is_caught_up and printed.is_caught_up
            self.is_restart = self.is_restart or printed.is_restart
            steps += new_steps
            events += new_events
            self.num_steps += len(new_steps)
            if printed.course.has_loss:
                self._followed = path
                break
        return steps, events


class _PrintedNumbers:
    """The numbers of one growing log."""

    def __init__(self, io: Io, path: Path, start: int) -> None:
        self.course = Course()
        self.is_caught_up = True
        self.is_restart = False
        self._follower = FileFollower(io, path, offset=start)
        self._numbers = LineNumbers()
        self._columns = Columns()
        self._rest = b""
        self._name: str | None = None
        """The training loss that is followed."""
        self._num_followed = 0
        self._others: list[Mapping[str, float]] = []

    def read(self) -> tuple[list[Step], list[MetricEvent]]:
        """New steps and events. Raises OSError."""
        self.is_restart = False
        bite = self._follower.read()
        if bite.is_restart:
            self._rest, self._columns = b"", Columns()
        self.is_caught_up = bite.is_caught_up
        lines = _ENDS.split(self._rest + bite.data)
        self._rest = lines.pop()[-_MAX_LINE_BYTES:]
        lines = self._with_names([ANSI.sub(b"", line) if b"\x1b" in line else line for line in lines])
        return self._read_lines(lines)

    def _read_lines(self, lines: list[bytes]) -> tuple[list[Step], list[MetricEvent]]:
        named = [line for line in lines if LOSS_WORDS.search(line)]
        if not named and not self._numbers.has_plain_loss:
            named = [line for line in lines if FUNCTION_WORDS.search(line)]
        stride = -(-len(named) // _MAX_LINES) or 1
        records = self._numbers.records(line.decode("utf-8", "replace") for line in named[::stride])
        steps: list[Step] = []
        events: list[MetricEvent] = []
        for record in chain.from_iterable(map(self._chosen, records)):
            if ANEW in record:
                self.course, self.is_restart, steps, events = Course(), True, [], []
            told = {name: value for name, value in record.items() if name != ANEW}
            new_steps, new_events = self.course.take(told)
            steps += new_steps
            events += new_events
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

    def _with_names(self, lines: list[bytes]) -> list[bytes]:
        """The lines, with the names of the header in the rows of a table."""
        if not self._columns.is_open and not any(map(_MAY_BE_HEADER.match, lines)):
            return lines
        rows = (self._columns.read(line[:_MAX_ROW_BYTES].decode("utf-8", "replace")) for line in lines)
        return [line if row is None else row.encode() for line, row in zip(lines, rows, strict=True)]
