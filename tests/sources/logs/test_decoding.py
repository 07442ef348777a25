from __future__ import annotations

import io
import pickle
import struct
import sys
import zipfile
from pathlib import Path

import pytest

from coach.model.training.log import LogHit, LogTail, Signature
from coach.sources.logs.decoding import as_utf8, is_no_text
from coach.sources.logs.scanner import LogScanner

OOM = Signature("MEM001", "oom", ("out of memory",), r"CUDA out of memory\. Tried (?P<size>\d+)")

LOG = "".join(f"step {step} loss 2.3 café\n" for step in range(800)) + (
    'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n    main()\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried 7\n日本 ended\n"
)
"""Longer than the beginning of a file by which text is recognized."""
WESTERN = LOG.replace("日本", "öß")


def _scanned(data: bytes, size: int) -> tuple[list[LogHit], LogTail]:
    scanner = LogScanner([OOM], "log")
    hits = [hit for place in range(0, len(data), size) for hit in scanner.feed(data[place : place + size])]
    return hits + scanner.flush(), scanner.tail()


@pytest.mark.parametrize("size", [1, 7, 64 << 10])
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (LOG.encode(), LOG),
        (LOG.encode("utf-8-sig"), LOG),
        (LOG.replace("\n", "\r\n").encode(), LOG),
        (WESTERN.encode("latin-1"), WESTERN),
        (LOG.encode("utf-16-le"), LOG),
        (LOG.encode("utf-16-be"), LOG),
        (b"\xff\xfe" + LOG.encode("utf-16-le"), LOG),
        (b"\xfe\xff" + LOG.encode("utf-16-be"), LOG),
        (b"\xff\xfe" + LOG.replace("\n", "\r\n").encode("utf-16-le"), LOG),
        (b"first\n" + LOG.encode("utf-16-le"), "first\n" + LOG),
        (b"first\n\xff\xfe" + LOG.encode("utf-16-le"), "first\n" + LOG),
        (LOG.encode("utf-16-le") + b"plain end\n", LOG + "plain end\n"),
        (b"a\xe9b\n" + LOG.encode(), "aéb\n" + LOG),
        (b"\0" * 100_001 + LOG.encode(), LOG),
        (LOG.encode() + b"\0" * 70_000 + b"after the hole\n", LOG + "after the hole\n"),
        (LOG.replace("Tried", "Tr\0ied").encode(), LOG),
    ],
    ids=[
        "utf-8", "utf-8 with a mark", "crlf", "latin-1", "utf-16-le", "utf-16-be", "utf-16-le with a mark",
        "utf-16-be with a mark", "utf-16 with crlf", "utf-16 appended", "utf-16 with a mark appended",
        "utf-8 appended to utf-16", "a latin-1 line in utf-8", "a hole before", "a hole within",
        "a stray zero",
    ],
)  # fmt: skip
def test_a_log_reads_alike_in_every_encoding_and_in_pieces_of_any_size(
    data: bytes, text: str, size: int
) -> None:
    hits, tail = _scanned(data, size)
    lines = text.splitlines()
    place = next(number for number, line in enumerate(lines, 1) if "out of memory" in line)
    assert [(hit.line, hit.fields, len(hit.traceback)) for hit in hits] == [(place, {"size": "7"}, 4)]
    assert not tail.is_binary
    assert (tail.num_lines, tail.lines) == (len(lines), tuple(lines[-400:]))


def _archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", "CUDA out of memory. Tried 1\n" * 1000)
    return buffer.getvalue()


@pytest.mark.parametrize("size", [7, 64 << 10])
@pytest.mark.parametrize(
    "data",
    [
        Path(sys.executable).resolve().read_bytes()[:100_000],
        _archive(),
        pickle.dumps({"note": "CUDA out of memory. Tried 1\n" * 1000}),
        b"\x89HDF\r\n\x1a\n" + b"CUDA out of memory. Tried 1\n" * 1000,
        struct.pack("<Q", 40) + b'{"w":{"dtype":"F32"}}' + b"CUDA out of memory. Tried 1\n" * 1000,
        struct.pack("<5000i", *range(5000)),
        struct.pack("<5000f", *(step / 7 for step in range(5000))),
    ],
    ids=["program", "zip", "pickle", "hdf5", "safetensors", "integers", "floats"],
)
def test_a_file_that_is_no_text_is_not_searched(data: bytes, size: int) -> None:
    hits, tail = _scanned(data, size)
    assert hits == []
    assert tail.is_binary


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 5000, b"PK is a word\n", b"\x1b[1m100%\x08\x07 done\x1b(B\n", "\u2588" * 3000 + "\n"],
    ids=["nothing", "zeros", "letters of a magic number", "a terminal's characters", "a bar"],
)
def test_text_is_not_taken_for_another_file(data: bytes | str) -> None:
    assert not is_no_text(data if isinstance(data, bytes) else data.encode("utf-16"))


def test_lines_without_zeros_pass_as_they_are() -> None:
    assert as_utf8(b"caf\xe9\r\nend") == (b"caf\xe9\r\nend", None)
