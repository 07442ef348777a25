"""Read the metrics of a run or of any job, wherever its program writes them.

run.json tells whether a user's own program trains. coach's trainers write `metrics/rank-*.jsonl`, and so does
an own program that calls `coach_report`. For any other own program, coach reads the numbers that it prints;
if it prints no loss, or only the last one, coach reads the files that its framework writes. Only one of the
three is followed: a mixture of two would be a curve that nobody trained.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from coach import runs
from coach.model.reading import MetricsChunk, Reading
from coach.sources.follow import describe
from coach.sources.io import Io
from coach.sources.logs.printed_metrics import PrintedMetrics
from coach.sources.metrics import foreign_metrics
from coach.sources.metrics.foreign_metrics import ForeignMetricsSource
from coach.sources.metrics.run_metrics import MetricsSource

INTERVAL_S = 2.0
ENOUGH_STEPS = 5
"""A program that prints this many losses is followed by them. Fewer are the remains of a progress bar."""


class RunMetricsSource:
    """Follows the metrics of one run, for coach's trainers and own programs."""

    name = "metrics"
    interval_s = INTERVAL_S

    def __init__(
        self,
        io: Io,
        target: str,
        run_dir: Path,
        is_own: Callable[[], bool | None],
        program: ProgramMetricsSource,
    ) -> None:
        """`is_own`: True for a user's own program; None: not known yet. `program`: the source of an own
        program's metrics."""
        self._io = io
        self._look = is_own
        self._written = MetricsSource(io, target, run_dir)
        paths = runs.RunPaths(run_dir)
        self._first_file = paths.metrics_of(0)
        self._program = program
        self._is_own: bool | None = None

    def poll(self) -> Iterable[Reading]:
        if self._is_own is None:
            self._is_own = self._look()
        if not self._is_own or self._is_reported():
            return self._written.poll()
        return self._program.poll()

    def _is_reported(self) -> bool:
        """True if the own program calls `coach_report`. These numbers are exact, so they are preferred,
        unless another source has already delivered losses."""
        if self._program.has_losses:
            return False
        with contextlib.suppress(OSError):
            return self._io.size(self._first_file) > 0
        return False


class ProgramMetricsSource:
    """Follows the numbers that a program prints, or else the files that its framework writes."""

    name = "metrics"
    interval_s = foreign_metrics.INTERVAL_S

    def __init__(
        self,
        io: Io,
        target: str,
        printed: PrintedMetrics,
        files: Callable[[], Sequence[Path]],
        left_aside: Callable[[], str] = str,
    ) -> None:
        """`files`: metric files of the framework. `left_aside`: why other files are not read."""
        self._io = io
        self._target = target
        self._printed = printed
        self._files = ForeignMetricsSource(io, target, files)
        self._left_aside = left_aside
        self._next_files_s = -math.inf

    @property
    def has_losses(self) -> bool:
        """True once losses were delivered that no other source may replace."""
        return self._prints_enough or self._files.has_loss

    def poll(self) -> Iterable[Reading]:
        return map(self._with_left_aside, self._read())

    def _with_left_aside(self, reading: Reading) -> Reading:
        chunk, words = reading.payload, self._left_aside()
        if not words or not isinstance(chunk, MetricsChunk):
            return reading
        return replace(reading, payload=replace(chunk, left_aside=words))

    @property
    def _prints_enough(self) -> bool:
        return self._printed.has_loss and self._printed.num_steps >= ENOUGH_STEPS

    def _read(self) -> Iterable[Reading]:
        now_s = self._io.now()
        is_due = not now_s < self._next_files_s <= now_s + foreign_metrics.INTERVAL_S
        reading = None if self._files.has_loss else self._read_printed(now_s)
        if reading is not None and (self._prints_enough or not reading.is_caught_up or not is_due):
            yield reading
        elif is_due:
            readings = list(self._files.poll())
            is_caught_up = all(each.is_caught_up for each in readings)
            if is_caught_up:
                self._next_files_s = now_s + foreign_metrics.INTERVAL_S
            if self._files.has_loss:
                yield from (_anew(each) for each in readings) if reading is not None else readings
            elif reading is not None:
                yield replace(reading, is_caught_up=is_caught_up)

    def _read_printed(self, start_s: float) -> Reading:
        chunk, error = None, None
        try:
            steps, events = self._printed.read()
            chunk = MetricsChunk(self._target, tuple(steps), tuple(events), self._printed.is_restart)
        except OSError as problem:
            error = describe(problem)
        now_s, is_caught_up = self._io.now(), error is not None or self._printed.is_caught_up
        return Reading(self.name, now_s, now_s - start_s, chunk, error, self._target, 0, is_caught_up)


def _anew(reading: Reading) -> Reading:
    """Replace the few printed steps by the steps from the files."""
    chunk = reading.payload
    return (
        replace(reading, payload=replace(chunk, is_restart=True))
        if isinstance(chunk, MetricsChunk)
        else reading
    )
