"""The file format of recordings: gzip, one JSON object per line, a header first.

Bytes become text with surrogate escapes, which is lossless and readable. If the writer was killed, a
recording can be read up to the last flush.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coach import installed
from coach.model.errors import UserError
from coach.trusted import open_trusted

SCHEMA = 1
KIND = "coach-recording"
MAX_BYTES = 256 << 20
"""Unpacked. A replay keeps all of it in memory, and needs two to three times as much."""

Entry = dict[str, Any]
"""`t` is the time (epoch seconds), `k` the kind:
`run` (an answer: id kind argv sep end rc out err error dur), `again` (the same answer as `of`), `bytes`
(appended to a file), `new` (the file was cut or replaced and starts again), `size` (of a file that was not
read), `mtime`, `dir` (names), `miss` (op, errno)."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """A chapter of the story that a recording tells. The screens hold its captions."""

    name: str
    at_s: float
    """Seconds after the start of the recording."""
    target: str | None = None
    """The run that the chapter is about."""


@dataclass(frozen=True, slots=True)
class Header:
    """Author, content and start time of a recording."""

    time_s: float
    backend: str
    user: str
    runs_root: str
    machine: Mapping[str, Any] | None = None
    """The one node of the local backend (fields of model.cluster.Node)."""
    targets: tuple[str, ...] = ()
    """Runs that the recorder followed."""
    is_anonymized: bool = False
    coach: str = field(default_factory=installed.version)
    chapters: tuple[Chapter, ...] = ()
    """Only a recording made for a demonstration has chapters."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole recording in memory."""

    header: Header
    entries: tuple[Entry, ...]

    @property
    def end_s(self) -> float:
        return max((entry["t"] for entry in self.entries), default=self.header.time_s)


def encode_bytes(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def decode_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def write_header(file: gzip.GzipFile, header: Header) -> None:
    write_line(
        file,
        {"kind": KIND, "schema": SCHEMA, **asdict(header)},
    )


def write_line(file: gzip.GzipFile, value: Mapping[str, Any]) -> None:
    file.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")


def demo_path() -> Path:
    """Path of the recording that ships with coach."""
    return installed.package() / "demo" / "demo.coach"


def open_recording(path: Path) -> Recording:
    """Read a recording. Raises UserError, in one line, for a file that is not a valid recording."""
    try:
        with (
            open_trusted(path, owner=None, follows_links=True) as packed,
            gzip.GzipFile(fileobj=packed) as file,
        ):
            lines = _lines(file, path)
            header = _parse_header(next(lines, b""), path)
            return Recording(header, tuple(_parse_entries(lines, path)))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except gzip.BadGzipFile:
        raise UserError(
            f"{path}: not a recording (not a gzip file)", "recordings are made with `coach record`"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def _lines(file: gzip.GzipFile, path: Path) -> Iterator[bytes]:
    num_bytes = 0
    try:
        while line := file.readline(MAX_BYTES - num_bytes + 1):
            num_bytes += len(line)
            if num_bytes > MAX_BYTES:
                raise UserError(
                    f"{path}: unpacks to more than {MAX_BYTES >> 20} MiB, too much to be played",
                    "record a shorter time, or fewer runs",
                )
            yield line
    except (EOFError, zlib.error):
        return  # the writer was killed: all earlier lines are complete


def _parse_header(line: bytes, path: Path) -> Header:
    wrong = UserError(f"{path}: not a recording of coach", "recordings are made with `coach record`")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(value, dict) or value.get("kind") != KIND:
        raise wrong
    if value.get("schema") != SCHEMA:
        raise UserError(
            f"{path}: recording of schema {value.get('schema')!r}: this coach reads schema {SCHEMA}",
            f"it was made with coach {value.get('coach')}",
        )
    try:
        if not _is_number(value.get("time_s")):
            raise ValueError("time_s: expected a number of seconds")
        return Header(
            time_s=float(value["time_s"]),
            backend=str(value["backend"]),
            user=str(value["user"]),
            runs_root=str(value["runs_root"]),
            machine=value["machine"] if isinstance(value.get("machine"), dict) else None,
            targets=tuple(str(name) for name in value.get("targets") or ()),
            is_anonymized=value.get("is_anonymized") is True,
            coach=str(value.get("coach")),
            chapters=tuple(map(_parse_chapter, value.get("chapters") or ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: the recording's header is damaged: {error}") from None


def _parse_chapter(value: Mapping[str, Any]) -> Chapter:
    if not _is_number(value["at_s"]):
        raise ValueError("at_s of a chapter: expected a number of seconds")
    target = value.get("target")
    return Chapter(str(value["name"]), float(value["at_s"]), None if target is None else str(target))


def _parse_entries(lines: Iterator[bytes], path: Path) -> Iterator[Entry]:
    known: set[int] = set()
    for number, line in enumerate(lines, start=2):
        if not line.endswith(b"\n"):
            return
        try:
            entry = json.loads(line)
            _check_entry(entry, known)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: line {number} of the recording is damaged: {error}") from None
        yield entry


def _check_entry(entry: object, known: set[int]) -> None:
    """Raises ValueError for an entry that a replay cannot use. `known` holds the ids of all earlier
    answers."""
    if not isinstance(entry, dict):
        raise ValueError("expected an object")
    kind = entry.get("k")
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise ValueError("k: no kind of entry that this coach knows")
    for name, (is_right, expected) in {"t": _TIME, **fields}.items():
        if not is_right(entry.get(name)):
            raise ValueError(f"{name}: expected {expected}")
    if kind == "run":
        known.add(entry["id"])
    elif kind == "again" and entry["of"] not in known:
        raise ValueError("of: expected the id of an earlier answer")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST_S


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_LATEST_S = 1e11
_Expected = tuple[Callable[[object], bool], str]
_WHOLE: _Expected = (_is_whole, "a whole number")
_WHOLE_OR_NONE: _Expected = (lambda value: value is None or _is_whole(value), "a whole number or null")
_TIME: _Expected = (_is_number, "a number of seconds")
_TEXT: _Expected = (_is_text, "a text")
_TEXT_OR_NONE: _Expected = (lambda value: value is None or _is_text(value), "a text or null")
_TEXTS: _Expected = (_is_texts, "a list of texts")
_FIELDS: Mapping[str, Mapping[str, _Expected]] = {
    "run": {
        "id": _WHOLE,
        "kind": _TEXT,
        "argv": _TEXTS,
        "sep": _TEXT,
        "end": _TEXT,
        "rc": _WHOLE_OR_NONE,
        "out": _TEXT,
        "err": _TEXT,
        "error": _TEXT_OR_NONE,
        "dur": _TIME,
    },
    "again": {"of": _WHOLE, "dur": _TIME},
    "bytes": {"path": _TEXT, "data": _TEXT},
    "new": {"path": _TEXT},
    "size": {"path": _TEXT, "n": _WHOLE},
    "mtime": {"path": _TEXT, "s": _TIME},
    "dir": {"path": _TEXT, "names": _TEXTS},
    "miss": {"path": _TEXT, "op": _TEXT, "errno": _WHOLE_OR_NONE},
}
"""Keys that each kind of entry must have beside its time."""
