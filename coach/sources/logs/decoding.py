"""The bytes of a log as UTF-8, whatever programs wrote them; and which files are no text.

One log may hold several encodings: each program that appends to it brings its own. So each line is decoded by
itself, and the pieces in which a log is read cannot change the result. Pure: bytes in, bytes out.
"""

from __future__ import annotations

import codecs
import re
from typing import Literal

from coach.sources.logs.line_text import ANSI

Order = Literal["utf-16-le", "utf-16-be"]

_HOLE = b"\0\0\0"
_HOLES = re.compile(rb"\0{4,}")
_MARKS: tuple[tuple[bytes, Order], ...] = (
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MIN_SHARE_OF_ZEROS = 4
"""The first line of UTF-16 holds at least one zero in this many bytes. A single zero is no encoding."""

_MAGIC = re.compile(
    rb"\x7fELF|PK\x03\x04|\x89HDF\r\n\x1a\n|\x89PNG|\x93NUMPY|\x80[\x02-\x05][\x8a\x95c}\]q(]|\x1f\x8b\x08"
    rb"|\xfd7zXZ\0|\x28\xb5\x2f\xfd|BZh[1-9]1AY&SY|SQLite format 3\0"
    rb'|[\s\S]{4,8}\{"(?:__metadata__"|[^"\n]{1,200}":\{"dtype")'  # safetensors
)
_NO_TEXT = bytes({*range(1, 7), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F})
"""Control characters that no program prints: all but NUL, bell, escape and white space."""
_TEXT_BYTES_PER_CONTROL = 50
"""Machine code, pickles and tensors hold one such byte in 10; text holds a few, if any."""


def is_no_text(head: bytes) -> bool:
    """True for a file that is not a log: a checkpoint, a program, a core, an archive.

    `head` is its beginning. It begins with the magic number of such a format, or one byte in 50 is a control
    character that no text has. Zeros alone prove nothing.
    """
    if _MAGIC.match(head):
        return True
    text = ANSI.sub(b"", as_utf8(head)[0])
    num_controls = len(text) - len(text.translate(None, _NO_TEXT))
    return num_controls * _TEXT_BYTES_PER_CONTROL > len(text)


def without_holes(data: bytes) -> bytes:
    """The data with three zeros for every longer row of them.

    A program whose log was truncated goes on at its old offset; a network file system shows bytes that it has
    not received as zeros. Such a hole must not fill the room of a line.
    """
    return _HOLES.sub(_HOLE, data) if b"\0" in data else data


def join_pieces(before: bytes, data: bytes) -> bytes:
    """The two in a row; a hole that both hold part of is one hole. Only the seam of `before` is looked at."""
    if not before.endswith(b"\0"):
        return before + without_holes(data)
    seam = len(_HOLE)
    return before[:-seam] + without_holes(before[-seam:] + data)


def as_utf8(lines: bytes, order: Order | None = None) -> tuple[bytes, Order | None]:
    """Lines in UTF-8, UTF-16 or Latin-1 without their byte order marks and zeros.

    Latin-1 stays as it is: `line_text.decode` reads it. `order` is the byte order of the line before, None
    for a line that was not UTF-16. Returns the lines, and the order of the last one.
    """
    # One byte is found faster than three.
    if b"\0" not in lines and (b"\xef" not in lines or codecs.BOM_UTF8 not in lines):
        return lines, None if lines else order
    decoded: list[bytes] = []
    *ended, unended = lines.split(b"\n")
    for line in ended:
        words, order = _line_as_utf8(line, order)
        decoded.append(words)
    # A zero alone is the second half of a newline: it says nothing of the next line.
    last, last_order = _line_as_utf8(unended, order) if unended.strip(b"\0") else (b"", order)
    return b"\n".join([*decoded, last]), last_order


def _line_as_utf8(line: bytes, order: Order | None) -> tuple[bytes, Order | None]:
    for mark, its_order in _MARKS:
        if line.startswith(mark) and b"\0" in line:
            line, order = line[len(mark) :], its_order
            return _decoded(line, order), order
    body = line.removeprefix(b"\0") if order == "utf-16-le" else line
    if not body.strip(b"\r\0"):
        return body.replace(b"\0", b""), order
    if b"\0" not in body and (order is None or body.isascii()):
        return body.removeprefix(codecs.BOM_UTF8), None
    if order is None and body.count(b"\0") * _MIN_SHARE_OF_ZEROS >= len(body):
        order = "utf-16-be" if body.startswith(b"\0") else "utf-16-le"
    if order is None:
        return body.replace(b"\0", b"").removeprefix(codecs.BOM_UTF8), None
    return _decoded(body, order), order


def _decoded(body: bytes, order: Order) -> bytes:
    """A line of UTF-16 without the newline; its zeros are only taken away where it is broken."""
    if len(body) % 2:
        # The newline's zero stands before it in one order; a carriage return's behind it in the other.
        body = body[:-1] if order == "utf-16-be" and body.endswith(b"\0") else body + b"\0"
    try:
        text = body.decode(order)
    except UnicodeDecodeError:
        text = "\0"
    return body.replace(b"\0", b"") if "\0" in text else text.encode("utf-8", "replace")
