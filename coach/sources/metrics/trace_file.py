"""A trace of torch.profiler: JSON in the format of Chrome's tracing, packed or not.

A trace grows with every step and has hundreds of megabytes easily, so it is read in pieces, event by event,
and what nobody looks at is dropped at once: neither the file nor its JSON is ever held whole.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coach.model.errors import UserError
from coach.model.training.trace import Trace, TraceEvent, Work
from coach.sources.io import Io

MAX_TEXT_BYTES = 400 << 20
"""Of the unpacked file. A login node is not for more: profile fewer steps."""
MAX_EVENTS = 500_000
"""Events that are looked at: a login node takes 10 s and 500 MB for them."""
MAX_VALUES = 2_000_000
"""Events in all, with those that are not looked at."""
_PIECE_BYTES = 1 << 20
_MAX_EVENT_CHARACTERS = 4 << 20
"""Of one event, and of the text before the first one."""
_MAX_NAME = 400

_WORK = {
    "cpu_op": Work.OPERATOR,
    "user_annotation": Work.ANNOTATION,
    "kernel": Work.KERNEL,
    "gpu_memcpy": Work.COPY,
    "gpu_memset": Work.COPY,
    "cuda_runtime": Work.RUNTIME,
    "cuda_driver": Work.RUNTIME,
}
"""Category of an event → what it is; others (flows, counters, Python's functions) are not looked at."""
_KERNEL_COLLECTIVE = re.compile(r"^(?:nccl|rccl|void nccl)", re.IGNORECASE)
_HOST_COLLECTIVE = re.compile(r"^(?:gloo|mpi|ucc):")
_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_RANK = re.compile(r'"(rank|world_size)"\s*:\s*(\d{1,9})')
_DEVICES = '"deviceProperties"'
_MAX_DEVICE = 2000
"""Characters of the properties of one device."""
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]{1,80})"')
_SPACE = re.compile(r"[\s,]*")


def read_trace(io: Io, path: Path) -> Trace:
    """The events of a file. Raises UserError for what is no trace of torch, or too large; OSError."""
    head, events, reader = "", list[TraceEvent](), _Events()
    for text in _texts(io, path):
        if not reader.has_begun:
            head = (head + text)[: 1 << 20]
        events.extend(reader.feed(text, path))
        for number, most in ((len(events), MAX_EVENTS), (reader.num_values, MAX_VALUES)):
            if number > most:
                raise UserError(f"{path}: more than {most:,} events", "profile fewer steps")
    if not reader.has_begun:
        raise UserError(f"{path}: not a trace of torch.profiler: it has no traceEvents")
    if not reader.is_whole:
        raise UserError(f"{path}: the trace is cut short", "was the run ended while it was written?")
    numbers = {found[1]: int(found[2]) for found in _RANK.finditer(head)}
    # The list is empty without a GPU: then the next name in the file is that of an event.
    device = _NAME.search(head.partition(_DEVICES)[2].partition("]")[0][:_MAX_DEVICE])
    return Trace(tuple(events), numbers.get("rank"), numbers.get("world_size"), device[1] if device else None)


class _Events:
    """Takes text in pieces, and gives the events of `traceEvents` one after the other."""

    def __init__(self) -> None:
        self.has_begun = False
        self.is_whole = False
        self.num_values = 0
        self._text = ""
        self._decode = json.JSONDecoder().raw_decode

    def feed(self, text: str, path: Path) -> Iterator[TraceEvent]:
        if self.is_whole:
            return
        self._text += text
        if not self.has_begun:
            found = _EVENTS.search(self._text)
            if found is None:
                if len(self._text) > _MAX_EVENT_CHARACTERS:
                    raise UserError(f"{path}: not a trace of torch.profiler: no traceEvents near its begin")
                return
            self.has_begun, self._text = True, self._text[found.end() :]
        at = 0
        while True:
            match = _SPACE.match(self._text, at)
            at = match.end() if match else at
            if self._text.startswith("]", at):
                self.is_whole = True
                break
            try:
                value, at = self._decode(self._text, at)
            except (ValueError, RecursionError):
                break
            self.num_values += 1
            event = event_of(value)
            if event is not None:
                yield event
        self._text = self._text[at:]
        if len(self._text) > _MAX_EVENT_CHARACTERS:
            raise UserError(f"{path}: not a trace of torch.profiler: an event that does not end")


def event_of(value: Any) -> TraceEvent | None:
    """One event; None for what does not last, has no sense, or is not looked at."""
    if not isinstance(value, Mapping) or value.get("ph") != "X":
        return None
    work, name = _WORK.get(str(value.get("cat"))), str(value.get("name"))[:_MAX_NAME]
    begin, lasted = _number(value.get("ts")), _number(value.get("dur"))
    if work is None or begin is None or lasted is None or lasted < 0:
        return None
    args = value.get("args")
    args = args if isinstance(args, Mapping) else {}
    if work is Work.KERNEL and (_KERNEL_COLLECTIVE.match(name) or "Collective name" in args):
        work = Work.COMMUNICATION
    elif work is Work.ANNOTATION and _HOST_COLLECTIVE.match(name):
        work = Work.HOST_COMMUNICATION
    num_bytes = args.get("bytes")
    return TraceEvent(
        work,
        name,
        begin,
        begin + lasted,
        (str(value.get("pid"))[:40], str(value.get("tid"))[:40]),
        num_bytes if isinstance(num_bytes, int) and num_bytes >= 0 else None,
    )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e18:
        return None
    return float(value) if math.isfinite(value) else None


def _texts(io: Io, path: Path) -> Iterator[str]:
    """The file's text, unpacked, piece by piece. A piece may end within a character."""
    first = io.read(path, 0, 2)
    unpack = zlib.decompressobj(wbits=31) if first == b"\x1f\x8b" else None
    offset, num_bytes, left = 0, 0, b""
    while data := io.read(path, offset, _PIECE_BYTES):
        offset += len(data)
        pending = data
        while pending:
            try:
                plain = unpack.decompress(pending, _PIECE_BYTES) if unpack else pending
            except zlib.error as error:
                raise UserError(f"{path}: cannot be unpacked: {error}") from None
            pending = unpack.unconsumed_tail if unpack else b""
            num_bytes += len(plain)
            if num_bytes > MAX_TEXT_BYTES:
                raise UserError(
                    f"{path}: more than {MAX_TEXT_BYTES >> 20} MiB of text", "profile fewer steps"
                )
            whole, left = _whole_characters(left + plain)
            yield whole


def _whole_characters(data: bytes) -> tuple[str, bytes]:
    """Text, and the bytes at the end that begin a character."""
    for cut in range(1, min(4, len(data)) + 1):
        byte = data[-cut]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            if needs > cut:
                return data[:-cut].decode("utf-8", "replace"), data[-cut:]
            break
    return data.decode("utf-8", "replace"), b""
