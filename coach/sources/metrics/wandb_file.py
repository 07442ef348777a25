"""Decode `run-ID.wandb`, the local file in which wandb stores the metrics of a run. wandb is not needed.

The file has a header of seven bytes, and then LevelDB's log format: blocks of 32 KiB, each with parts of
records. A part has a checksum. A record is a protobuf message. Online and offline runs write the same file,
one block at a time.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from coach.sources.metrics.protobuf_fields import fields_of

MAX_RECORD_BYTES = 1 << 20
"""Larger records are skipped. The metrics of a step take hundreds of bytes; a larger record is a table or the
like."""
_FILE_HEADER_BYTES = 7
_MAGIC = b":W&B\xe1\xbe"
"""In the file, the format's version follows: one byte, 0."""
_BLOCK_BYTES = 32 << 10
_PART_HEADER_BYTES = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_MAX_VALUE_BYTES = 64
"""Longest value that is read as a number, in bytes of JSON."""
_MAX_ITEMS = 1024
_HISTORY, _ITEM, _STEP = 2, 1, 2
_KEY, _NESTED_KEY, _VALUE = 1, 2, 16
"""Field numbers in wandb's protobuf schema: Record.history, HistoryRecord.item and .step, HistoryItem.key,
.nested_key and .value_json."""


class WandbDecoder:
    """Takes the bytes of the file piece by piece, and returns the history records that each piece
    completes."""

    def __init__(self) -> None:
        self.num_bad = 0
        self._rest = b""
        """Bytes of an incomplete part, kept for the next call of `feed`."""
        self._place = 0
        """Offset in the file at which `_rest` begins."""
        self._num_to_skip = 0
        self._record: bytearray | None = None
        """The parts of the current record; None between records, and in a skipped record."""
        self._is_broken = False

    def feed(self, data: bytes) -> list[Mapping[str, Any]]:
        if self._is_broken:
            return []
        data = self._rest + data
        start, records = 0, []
        if self._place == 0:
            if len(data) < _FILE_HEADER_BYTES:
                self._rest = data
                return []
            if data[:_FILE_HEADER_BYTES] != _MAGIC + b"\0":
                self._is_broken, self.num_bad, self._rest = True, self.num_bad + 1, b""
                return []
            start = _FILE_HEADER_BYTES
        while True:
            num_skipped = min(self._num_to_skip, len(data) - start)
            self._num_to_skip -= num_skipped
            start += num_skipped
            left_in_block = _BLOCK_BYTES - (self._place + start) % _BLOCK_BYTES
            if left_in_block < _PART_HEADER_BYTES:
                self._num_to_skip = left_in_block
                if start == len(data):
                    break
                continue
            if len(data) - start < _PART_HEADER_BYTES:
                break
            checksum, length, kind = struct.unpack_from("<IHB", data, start)
            end = start + _PART_HEADER_BYTES + length
            if not _FULL <= kind <= _LAST or length > left_in_block - _PART_HEADER_BYTES:
                # Skip the rest of this block: its parts cannot be found. Zeros are padding, not damage.
                self._drop(left_in_block, is_bad=kind != 0 or length != 0)
                continue
            if end > len(data):
                break
            part = data[start + _PART_HEADER_BYTES : end]
            if zlib.crc32(part, zlib.crc32(bytes((kind,)))) != checksum:
                self._drop(left_in_block, is_bad=True)
                continue
            records += self._take(kind, part)
            start = end
        self._rest, self._place = data[start:], self._place + start
        return records

    def _drop(self, num_bytes: int, *, is_bad: bool) -> None:
        self._num_to_skip, self._record = num_bytes, None
        self.num_bad += is_bad

    def _take(self, kind: int, part: bytes) -> list[Mapping[str, Any]]:
        """Add a part to the current record. Returns the history records in it if it is now complete."""
        if kind in (_FULL, _FIRST):
            self._record = bytearray()
        if self._record is None:
            return []
        self._record += part
        if len(self._record) > MAX_RECORD_BYTES:
            self._record = None
        if kind in (_FIRST, _MIDDLE) or self._record is None:
            return []
        whole, self._record = bytes(self._record), None
        try:
            return list(_history_of(whole))
        except (ValueError, IndexError):
            self.num_bad += 1
            return []


def _history_of(record: bytes) -> Iterator[Mapping[str, Any]]:
    """The history records in one record of the file: the metrics of each step."""
    for field, history in fields_of(record):
        if field != _HISTORY or not isinstance(history, bytes):
            continue
        values: dict[str, Any] = {}
        for inner, value in fields_of(history):
            if inner == _ITEM and isinstance(value, bytes) and len(values) < _MAX_ITEMS:
                name, number = _item_of(value)
                values[name] = number
            elif inner == _STEP and isinstance(value, bytes):
                values.setdefault("_step", dict(fields_of(value)).get(1, 0))
        if values:
            yield values


def _item_of(item: bytes) -> tuple[str, float | None]:
    """The name and the value of one metric; the value is None if it is not a number."""
    names, number = [], None
    for field, value in fields_of(item):
        if not isinstance(value, bytes):
            continue
        if field in (_KEY, _NESTED_KEY):
            names.append(value.decode("utf-8", "replace"))
        elif field == _VALUE and len(value) <= _MAX_VALUE_BYTES:
            number = _number(value)
    return ".".join(names), number


def _number(value: bytes) -> float | None:
    try:
        told = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if isinstance(told, bool):
        return None
    if isinstance(told, int | float):
        return told
    return float(told) if told in ("NaN", "Infinity", "-Infinity") else None
