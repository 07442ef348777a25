"""Parse protobuf's wire format: the fields of a message, without a schema and without the protobuf package.

Training environments have protobuf, coach's environment does not: the few fields of a scalar do not justify a
dependency.
"""

from __future__ import annotations

from collections.abc import Iterator


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a message: varints as integers, all others as bytes.

    Raises ValueError or IndexError if the bytes are no message.
    """
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        if kind == 2:
            length, place = _varint(message, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if place + length > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise ValueError("a number is too long")
