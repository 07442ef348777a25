"""Decode the scalars of TensorBoard's event files: length-framed protobuf, read without tensorboard."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from coach.sources.metrics.protobuf_fields import fields_of

MAX_RECORD_BYTES = 1 << 20
"""A scalar takes tens of bytes: a larger record is an image or a histogram, and is skipped."""
_HEADER_BYTES = 12
_FOOTER_BYTES = 4
_MAX_LENGTH = 1 << 32
_FLOAT, _DOUBLE = 1, 2


@dataclass(frozen=True, slots=True)
class Scalar:
    tag: str
    value: float
    step: int
    time_s: float


class EventsDecoder:
    """Takes bytes and returns scalars. An incomplete record waits for the rest."""

    def __init__(self) -> None:
        self.num_bad = 0
        self._rest = b""
        self._num_to_skip = 0
        self._is_broken = False

    def feed(self, data: bytes) -> list[Scalar]:
        skipped = min(self._num_to_skip, len(data))
        self._num_to_skip -= skipped
        data = self._rest + data[skipped:]
        scalars: list[Scalar] = []
        start = 0
        while not self._is_broken and len(data) - start >= _HEADER_BYTES:
            (length,) = struct.unpack_from("<Q", data, start)
            end = start + _HEADER_BYTES + length + _FOOTER_BYTES
            if length > _MAX_LENGTH:
                self._is_broken, self.num_bad = True, self.num_bad + 1
            elif length > MAX_RECORD_BYTES:
                self._num_to_skip = max(0, end - len(data))
                start = min(end, len(data))
            elif end > len(data):
                break
            else:
                try:
                    scalars += _scalars(data[start + _HEADER_BYTES : end - _FOOTER_BYTES])
                except (ValueError, IndexError, struct.error):
                    self.num_bad += 1
                start = end
        self._rest = b"" if self._is_broken else data[start:]
        return scalars


def _scalars(event: bytes) -> Iterator[Scalar]:
    """Field numbers: tensorflow.Event: 1 wall_time, 2 step, 5 summary; Summary: 1 value; Value: 1 tag, 2
    simple_value, 8 tensor."""
    time_s, step, summaries = 0.0, 0, []
    for field, value in fields_of(event):
        if field == 1 and isinstance(value, bytes):
            (time_s,) = struct.unpack("<d", value)
        elif field == 2 and isinstance(value, int):
            step = value
        elif field == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for field, entry in fields_of(summary):
            if field == 1 and isinstance(entry, bytes):
                parts = dict(fields_of(entry))
                tag, number = parts.get(1), _number(parts)
                if isinstance(tag, bytes) and number is not None and step < 1 << 63:
                    yield Scalar(tag.decode("utf-8", "replace"), number, step, time_s)


def _number(parts: dict[int, int | bytes]) -> float | None:
    simple, tensor = parts.get(2), parts.get(8)
    if isinstance(simple, bytes):
        return float(struct.unpack("<f", simple)[0])
    if not isinstance(tensor, bytes):
        return None
    inner = dict(fields_of(tensor))  # 1 dtype, 4 tensor_content, 5 float_val, 6 double_val
    for kind, layout, own in ((_FLOAT, "<f", 5), (_DOUBLE, "<d", 6)):
        content = inner.get(own) or inner.get(4)
        if inner.get(1) == kind and isinstance(content, bytes) and len(content) == struct.calcsize(layout):
            return float(struct.unpack(layout, content)[0])
    return None
