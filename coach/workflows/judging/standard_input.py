"""Read a log from standard input, in pieces: it may be longer than the memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from coach.model.reading import LogChunk, MetricsChunk, Reading
from coach.model.training.log import LogHit, Signature
from coach.sources.io import Io
from coach.sources.logs.printed_metrics import PrintedNumbers
from coach.sources.logs.scanner import LogScanner

_FILE = "<stdin>"
_BITE_BYTES = 1 << 20


def read_log(target: str, io: Io, signatures: Sequence[Signature], stdin: BinaryIO) -> Iterator[Reading]:
    """The numbers that a log prints, then its lines. Reads to the end."""
    start_s = io.now()
    scanner, numbers = LogScanner(signatures, _FILE), PrintedNumbers()
    hits: list[LogHit] = []
    while data := stdin.read(_BITE_BYTES):
        hits += scanner.feed(data)
        yield _printed(target, io, start_s, numbers, data)
    hits += scanner.flush()
    yield _printed(target, io, start_s, numbers, b"\n")  # ends an unfinished last line
    chunk = LogChunk(target, tuple(hits), scanner.tail())
    yield Reading("log", io.now(), io.now() - start_s, chunk, target=target)


def _printed(target: str, io: Io, start_s: float, numbers: PrintedNumbers, data: bytes) -> Reading:
    steps, events = numbers.take(data)
    chunk = MetricsChunk(target, tuple(steps), tuple(events), numbers.is_restart)
    return Reading("metrics", io.now(), io.now() - start_s, chunk, target=target)
