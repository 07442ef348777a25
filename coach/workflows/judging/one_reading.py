"""Read a target once, completely, for `coach check` and `coach compare`.

Uses the same sources as the screens, one after the other in this thread, until each has read everything.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

from coach.config import Settings
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.model.reading import JobList, LogChunk, MetricsChunk, Reading
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, Signature
from coach.monitor.monitor import Monitor
from coach.sources.io import Io
from coach.sources.logs.printed_metrics import PrintedNumbers
from coach.sources.logs.scanner import LogScanner
from coach.workflows.judging.pasted import MAX_BYTES, recognise
from coach.workflows.judging.targets import (
    Target,
    TargetKind,
    jobs_source,
    known_cluster,
    output_paths_of,
    queue_of,
    run_index,
    target_sources,
)

if TYPE_CHECKING:
    from coach.sources.base import PollingSource
    from coach.sources.logs.job_outputs import OutputPaths
    from coach.workflows.judging.directory_files import ForeignFiles

_STDIN = "<stdin>"
_BITE_BYTES = 1 << 20


def read_once(
    target: Target,
    settings: Settings,
    io: Io,
    backend: str,
    user: str,
    signatures: Sequence[Signature],
    *,
    stdin: BinaryIO | None = None,
    is_queue_asked: bool = True,
    queue: JobList | None = None,
    output_paths: OutputPaths | None = None,
    files: ForeignFiles | None = None,
    ended_as: str | None = None,
) -> tuple[TargetSnapshot, History]:
    """All that is known about a target. Raises UserError when it cannot be read.

    If the queue does not answer, the run directory and the log are used alone. `queue` and `output_paths` are
    answers that are known already; the queue is then not asked again. `files`: a foreign target's, for a
    caller that reports which were read. `ended_as`: the state of a job that Slurm still calls COMPLETING,
    because its epilog runs.
    """
    monitor = Monitor(user, None, known_cluster(settings))
    monitor.watch({target.name: ()})
    paths = output_paths or output_paths_of(io, settings)
    head, piped = _beginning(target, io, stdin)
    pasted = recognise(head, target.name, io.now())
    if pasted is not None:
        monitor.apply(Reading("pasted", io.now(), 0.0, pasted.payload, target=target.name))
        snapshot = replace(monitor.target(target.name, io.now()), taken_for=pasted.words)
        return snapshot, monitor.history(target.name)
    if piped is not None:
        for reading in _read_log(target.name, io, signatures, head, piped):
            monitor.apply(reading)
    elif queue is not None:
        monitor.apply(Reading("jobs", io.now(), 0.0, queue))
    elif is_queue_asked and target.kind in (TargetKind.RUN, TargetKind.JOB):
        for reading in jobs_source(io, queue_of(target, backend), settings, user).poll():
            if isinstance(reading.payload, JobList):
                told = _as_ended(reading.payload, ended_as)
                paths.learn(told.jobs)
                reading = replace(reading, payload=told)
            monitor.apply(reading)
    for key, factory in target_sources(
        target, io, lambda: signatures, paths, files=files, index=run_index(settings)
    ).items():
        error = _read_all(factory(), monitor)
        is_essential = key.startswith("run:") or target.kind is TargetKind.LOG
        if error is not None and is_essential:
            hint = (
                "its logs and metrics can still be looked at: give the path of its stdout.log or stderr.log"
            )
            raise UserError(error, hint if target.kind is TargetKind.RUN else None)
    return monitor.target(target.name, io.now()), monitor.history(target.name)


def _beginning(target: Target, io: Io, stdin: BinaryIO | None) -> tuple[bytes, BinaryIO | None]:
    """The first piece of standard input, and standard input itself; or a file that is short enough for a
    pasted text, whole. Empty for any other target.

    A pipe, as of `coach check <(…)`, is left to the log's reader: it can be read only once.
    """
    if target.kind is TargetKind.STDIN:
        piped = stdin or sys.stdin.buffer
        return piped.read(_BITE_BYTES), piped
    if target.kind is not TargetKind.LOG or target.path is None or target.logs or target.metrics:
        return b"", None
    with suppress(OSError):
        if io.size(target.path):
            return io.read(target.path, 0, MAX_BYTES), None
    return b"", None


def _read_log(
    target: str, io: Io, signatures: Sequence[Signature], data: bytes, stdin: BinaryIO
) -> Iterator[Reading]:
    """The numbers that a log prints, then its lines. It is read in pieces: it may be longer than the memory.
    `data`: the first piece, which was read already."""
    start_s = io.now()
    scanner, numbers = LogScanner(signatures, _STDIN), PrintedNumbers()
    hits: list[LogHit] = []
    while data:
        hits += scanner.feed(data)
        yield _printed(target, io, start_s, numbers, data)
        data = stdin.read(_BITE_BYTES)
    hits += scanner.flush()
    yield _printed(target, io, start_s, numbers, b"\n")  # ends an unfinished last line
    chunk = LogChunk(target, tuple(hits), scanner.tail())
    yield Reading("log", io.now(), io.now() - start_s, chunk, target=target)


def _printed(target: str, io: Io, start_s: float, numbers: PrintedNumbers, data: bytes) -> Reading:
    steps, events = numbers.take(data)
    chunk = MetricsChunk(target, tuple(steps), tuple(events), numbers.is_restart)
    return Reading("metrics", io.now(), io.now() - start_s, chunk, target=target)


def _as_ended(queue: JobList, state: str | None) -> JobList:
    if state is None:
        return queue
    rows = (replace(job, state=state) if job.state == "COMPLETING" else job for job in queue.jobs)
    return replace(queue, jobs=tuple(rows))


def _read_all(source: PollingSource, monitor: Monitor) -> str | None:
    """Poll until everything was read, and once more, so that an unfinished last line counts. Returns the last
    error."""
    error: str | None = None
    num_calm = 0
    while num_calm < 2:
        is_caught_up = True
        for reading in source.poll():
            monitor.apply(reading)
            error = reading.error or error
            is_caught_up = is_caught_up and reading.is_caught_up
        if error is not None:
            return error
        num_calm = num_calm + 1 if is_caught_up else 0
    return error
