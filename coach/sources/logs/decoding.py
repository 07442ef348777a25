"""Convert the bytes of a log to UTF-8, and recognize files that are not text.

A log may hold several encodings, because every program that appends to it uses its own. So each line is
decoded separately, and the result does not depend on the pieces in which a log is read. Pure: bytes in, bytes
out.
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
"""A line is taken for UTF-16 if at least one byte in this many is zero. A single zero proves no encoding."""

_MAGIC = re.compile(
    rb"\x7fELF|PK\x03\x04|\x89HDF\r\n\x1a\n|\x89PNG|\x93NUMPY|\x80[\x02-\x05][\x8a\x95c}\]q(]|\x1f\x8b\x08"
    rb"|\xfd7zXZ\0|\x28\xb5\x2f\xfd|BZh[1-9]1AY&SY|SQLite format 3\0"
    rb'|[\s\S]{4,8}\{"(?:__metadata__"|[^"\n]{1,200}":\{"dtype")'  # safetensors
)
_NO_TEXT = bytes({*range(1, 7), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F})
"""Control characters that no program prints: all except NUL, bell, escape and white space."""
_TEXT_BYTES_PER_CONTROL = 50
"""Machine code, pickles and tensors contain one such byte in 10; text contains a few, if any."""


def is_no_text(head: bytes) -> bool:
    """True if a file is not a log, but a checkpoint, a program, a core dump or an archive.

    `head` is its beginning. The file is no text if it begins with the magic number of such a format, or if
    one byte in 50 is a control character that text does not contain. Zeros alone prove nothing.
    """
    if _MAGIC.match(head):
        return True
    text = ANSI.sub(b"", as_utf8(head)[0])
    num_controls = len(text) - len(text.translate(None, _NO_TEXT))
    return num_controls * _TEXT_BYTES_PER_CONTROL > len(text)


def without_holes(data: bytes) -> bytes:
    """The data with every longer run of zeros shortened to three.

    A program whose log was truncated continues at its old offset, and a network file system shows bytes that
    it has not received as zeros. Such a hole must not use up the length limit of a line.
    """
    return _HOLES.sub(_HOLE, data) if b"\0" in data else data


def join_pieces(before: bytes, data: bytes) -> bytes:
    """Concatenate two pieces; a hole that spans both becomes one hole. Checks only the end of `before`."""
    if not before.endswith(b"\0"):
        return before + without_holes(data)
    seam = len(_HOLE)
    return before[:-seam] + without_holes(before[-seam:] + data)


def as_utf8(lines: bytes, order: Order | None = None) -> tuple[bytes, Order | None]:
    """Convert lines in UTF-8, UTF-16 or Latin-1, and drop byte order marks and zeros.

    Latin-1 is left unchanged: `line_text.decode` reads it. `order` is the byte order of the line before; None
    if that line was not UTF-16. Returns the lines, and the order of the last one.
    """
    # Searching for one byte is faster than searching for three.
    if b"\0" not in lines and (b"\xef" not in lines or codecs.BOM_UTF8 not in lines):
        return lines, None if lines else order
    decoded: list[bytes] = []
    *ended, unended = lines.split(b"\n")
    for line in ended:
        words, order = _line_as_utf8(line, order)
        decoded.append(words)
    # A single zero is the second half of a newline and tells nothing about the next line.
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
    """Decode a line of UTF-16 without its newline; if it is malformed, only remove its zeros."""
    if len(body) % 2:
        # The zero of the newline precedes it in big-endian; the zero of a carriage return follows it in
        # little-endian.
        body = body[:-1] if order == "utf-16-be" and body.endswith(b"\0") else body + b"\0"
    try:
        text = body.decode(order)
    except UnicodeDecodeError:
        text = "\0"
    return body.replace(b"\0", b"") if "\0" in text else text.encode("utf-8", "replace")
