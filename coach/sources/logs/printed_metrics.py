"""The metrics of a run: what coach's trainers write, or the numbers that a person's own program prints.

run.json says which of the two it is. Of an own program's logs the first that names a loss is followed: two
streams with the same numbers would make a curve that nobody trained.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from coach.model.reading import MetricsChunk, Reading
from coach.model.training.metrics import MetricEvent, Step
from coach.sources.follow import FileFollower, describe
from coach.sources.io import Io
from coach.sources.logs.printed_numbers import LineNumbers
from coach.sources.metrics.quantities import Course
from coach.sources.metrics.run_metrics import MetricsSource

INTERVAL_S = 2.0
_MAX_LINES = 1024
"""The most lines that are read of one bite, evenly chosen: a curve needs no more, and a progress bar prints
ten a second."""
_MAX_LINE_BYTES = 1 << 16
_ENDS = re.compile(rb"[\r\n]+")


class RunMetricsSource:
    """Follows the metrics of one run, whoever wrote its program."""

    name = "metrics"
    interval_s = INTERVAL_S

    def __init__(
        self,
        io: Io,
        target: str,
        run_dir: Path,
        is_own: Callable[[], bool | None],
        logs: Callable[[], Sequence[Path]],
        start_of: Callable[[Path], int],
    ) -> None:
        """`is_own`: True for an own program; None: not known yet. `start_of`: how many bytes of a log stood
        there before."""
        self._io = io
        self._target = target
        self._look = is_own
        self._logs = logs
        self._start_of = start_of
        self._written = MetricsSource(io, target, run_dir)
        self._is_own: bool | None = None
        self._printed: dict[Path, _PrintedNumbers] = {}
        self._followed: Path | None = None

    def poll(self) -> Iterable[Reading]:
        if self._is_own is None:
            self._is_own = self._look()
        if not self._is_own:
            yield from self._written.poll()
            return
        start_s = self._io.now()
        error, payload, is_caught_up = None, None, True
        try:
            steps, events, is_caught_up = self._read()
            payload = MetricsChunk(self._target, tuple(steps), tuple(events))
        except OSError as problem:
            error = describe(problem)
        now_s = self._io.now()
        yield Reading(
            self.name,
            now_s,
            now_s - start_s,
            payload,
            error,
            self._target,
            0,
            is_caught_up or error is not None,
        )

    def _read(self) -> tuple[list[Step], list[MetricEvent], bool]:
        paths = self._logs() if self._followed is None else (self._followed,)
        steps: list[Step] = []
        events: list[MetricEvent] = []
        is_caught_up = True
        for path in paths:
            printed = self._printed.setdefault(path, _PrintedNumbers(self._io, path, self._start_of(path)))
            try:
                new_steps, new_events = printed.read()
            except FileNotFoundError:
                continue
            is_caught_up = is_caught_up and printed.is_caught_up
            steps += new_steps
            events += new_events
            if printed.course.has_loss:
                self._followed = path
                break
        return steps, events, is_caught_up


class _PrintedNumbers:
    """One log as it grows."""

    def __init__(self, io: Io, path: Path, start: int) -> None:
        self.course = Course()
        self.is_caught_up = True
        self._follower = FileFollower(io, path, offset=start)
        self._numbers = LineNumbers()
        self._rest = b""

    def read(self) -> tuple[list[Step], list[MetricEvent]]:
        """Raises OSError."""
        bite = self._follower.read()
        if bite.is_restart:
            self._rest = b""
        self.is_caught_up = bite.is_caught_up
        lines = _ENDS.split(self._rest + bite.data)
        self._rest = lines.pop()[-_MAX_LINE_BYTES:]
        named = [line for line in lines if b"loss" in line or b"Loss" in line or b"LOSS" in line]
        stride = -(-len(named) // _MAX_LINES) or 1
        steps: list[Step] = []
        events: list[MetricEvent] = []
        for record in self._numbers.records(line.decode("utf-8", "replace") for line in named[::stride]):
            new_steps, new_events = self.course.take(record)
            steps += new_steps
            events += new_events
        return steps, events
