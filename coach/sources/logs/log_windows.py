"""Read a log of any size in windows, search it, and find a line by its number.

Only the requested part is read: a log of 5 GB opens at its end at once. Lines are counted as in `scanner.py`:
each ends with a newline.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Lock

from ahocorasick_rs import BytesAhoCorasick

from coach.model.errors import UserError
from coach.model.training.log import MAX_SEARCHED_CHARS
from coach.model.training.log_window import LogLook, LogWindow, folds_case
from coach.sources.io import Io
from coach.sources.logs.decoding import as_utf8, is_no_text, without_holes
from coach.sources.logs.line_text import ANSI, decode, last_state, parse_time_s

_HALF_BYTES = 64 << 10
"""Bytes in a window on each side of the requested line."""
_HALF_LINES = 2000
_FEW_LINES = 200
_FEW_BYTES = 8 << 10
"""If one side of the requested line has fewer lines and bytes, they may not fill the pager."""
_SHOWN_BYTES = 4 << 10
"""Bytes shown of a line that is longer than half a window."""
_PIECE_BYTES = 1 << 20
"""Bytes that are searched or counted before the user may stop it and other threads may run."""
_NEAR_BYTES = 64 << 20
"""Bytes that may be counted, without a request, to number the lines of a window."""
_SEAM_BYTES = 4096
"""Bytes of a line longer than a piece that are searched twice, because a word may lie across two pieces."""
_HEAD_BYTES = 8 << 10

_ERROR = re.compile(
    rb"Traceback \(most recent call last\)"
    rb"|\b(?:ERROR|FATAL|CRITICAL|Fatal|fatal|error|Error)\b(?=[:\]\s])(?!:? ?[\d.]+\b)"
    rb"|\b[A-Z]\w{0,60}(?:Error|Exception|Interrupt)\b(?=:|\(|\s*$)"
    rb"|Segmentation fault|core dumped|\bKilled\b|\bpanicked at\b|terminate called|NCCL WARN|oom[_-]kill"
    rb"|CANCELLED AT|OUT_OF_MEMORY|Out Of Memory|out of memory|signal \d+ \(SIG"
)
"""Words that mark an error line. They serve for paging through a log; a rule demands far more."""
_ERROR_LITERALS = (
    b"Traceback", b"Error", b"error", b"ERROR", b"FATAL", b"atal", b"CRITICAL", b"Exception", b"Interrupt",
    b"Segmentation", b"core dumped", b"Killed", b"panicked", b"terminate called", b"NCCL WARN", b"oom",
    b"CANCELLED", b"OUT_OF_MEMORY", b"Out Of Memory", b"out of memory", b"(SIG",
)  # fmt: skip
"""Every line that matches `_ERROR` contains one of these; searching for them is many times faster."""

Heed = Callable[[int, int], bool]
"""Called with (bytes read, bytes in all); returns False to stop."""


class Stopped(Exception):
    """The user stopped the search."""


class LogWindows:
    """One log file. Its methods may be called from several threads."""

    def __init__(self, io: Io, path: Path) -> None:
        self._io = io
        self._path = path
        self._size = 0
        self._is_text = False
        self._known: list[tuple[int, int]] = [(0, 1)]
        """(offset, line number at that offset), ascending."""
        self._lock = Lock()
        self._error_words = BytesAhoCorasick(_ERROR_LITERALS)

    def look(self, look: LogLook, heed: Heed = lambda done, total: True) -> LogWindow:
        """Read the requested window. Raises OSError, and Stopped if `heed` returns False."""
        size = self._io.size(self._path)
        with self._lock:
            if size < self._size:  # the file was replaced
                self._known = [(0, 1)]
            self._size = size
        if not self._is_text:
            self._is_text = not is_no_text(self._io.read(self._path, 0, _HEAD_BYTES))
            if not self._is_text:
                return LogWindow(str(self._path), (), (size,), size, is_binary=True)
        if look.line is not None:
            return self._around(self._start_of(look.line, size, heed), size)
        if look.is_search:
            return self._found(look, size, heed)
        if look.offset is not None:
            return self._around(min(look.offset, size), size)
        return self._around(size, size, is_asked=False)

    # Windows

    def _around(self, offset: int, size: int, is_asked: bool = True) -> LogWindow:
        """The window around an offset."""
        start = self._line_start(offset + 1) if is_asked else offset
        texts, offsets = self._above(start, is_asked)
        more, ends = self._below(start, offset, size)
        texts, offsets = texts + more, offsets + ends
        if not texts:
            texts, offsets = [b""], [start, size]
        focus = max(0, bisect_right(offsets, offset, hi=len(texts)) - 1)
        first_shown, behind = max(0, focus - _HALF_LINES), focus + _HALF_LINES
        shown = texts[first_shown:behind]
        return LogWindow(
            str(self._path),
            tuple(last_state(decode(text)) for text in shown),
            tuple(offsets[first_shown : first_shown + len(shown) + 1]),
            size,
            self._number_near(offsets[first_shown]),
            focus - first_shown if is_asked else None,
            frozenset(
                index for index, text in enumerate(shown) if _ERROR.search(text, 0, MAX_SEARCHED_CHARS)
            ),
        )

    def _above(self, end: int, is_asked: bool) -> tuple[list[bytes], list[int]]:
        """Lines up to an offset, and the offset of each: half a window, or more if the pager could not scroll
        in so few lines."""
        texts: list[bytes] = []
        offsets: list[int] = []
        while end > 0 and _is_little(texts):
            first = max(0, end - _HALF_BYTES)
            data = self._io.read(self._path, first, end - first)
            cut = data.find(b"\n", 0, len(data) - 1) + 1 if first else 0
            if first and not cut and is_asked:
                first = self._line_start(end)
                more, starts = [self._long_line(first, end)], [first]
            else:
                first += cut
                more, starts = _lines_of(data[cut:], first)
            texts, offsets, end = more + texts, starts + offsets, first
        return texts, offsets

    def _below(self, start: int, offset: int, size: int) -> tuple[list[bytes], list[int]]:
        """The same lines from `start` on, among them the one that holds `offset`; offsets has their end
        too."""
        texts: list[bytes] = []
        offsets: list[int] = []
        while start < size and (start <= offset or _is_little(texts)):
            data = self._io.read(self._path, start, min(_HALF_BYTES, size - start))
            if not data:
                break
            end = start + len(data)
            if end < size:
                end = start + data.rfind(b"\n") + 1
            if end > start:
                more, starts = _lines_of(data[: end - start], start)
            else:
                end = self._line_end(start + len(data), size)
                more, starts = [self._long_line(start, end)], [start]
            texts, offsets, start = texts + more, offsets + starts, end
        return texts, [*offsets, start]

    def _line_end(self, offset: int, size: int) -> int:
        """The first end of a line behind this offset; _NEAR_BYTES away at most."""
        limit = min(size, offset + _NEAR_BYTES)
        for start, piece in self._pieces(offset, limit):
            if (place := piece.find(b"\n")) >= 0:
                return start + place + 1
        return limit

    def _line_start(self, end: int) -> int:
        """The start of the line whose last byte is before `end`; _NEAR_BYTES away at most."""
        limit, high = max(0, end - _NEAR_BYTES), end - 1
        while high > limit:
            low = max(limit, high - _HALF_BYTES)
            place = self._io.read(self._path, low, high - low).rfind(b"\n")
            if place >= 0:
                return low + place + 1
            high = low
        return limit

    def _long_line(self, start: int, end: int) -> bytes:
        """The text of a line longer than half a window: its beginning and its length, or the last state of
        its progress bar."""
        head = _text_of(self._io.read(self._path, start, _SHOWN_BYTES))
        if b"\r" in head:
            return _text_of(self._io.read(self._path, end - _SHOWN_BYTES, _SHOWN_BYTES)).rstrip(b"\n\0")
        return head + f" … ({end - start:,} bytes in this line)".encode()

    # Line numbers

    def _number_near(self, offset: int) -> int | None:
        """The number of the line that begins at this offset; None if counting would take long."""
        with self._lock:
            at = bisect_right(self._known, (offset, 1 << 62))
            below = self._known[at - 1]
            above = self._known[at] if at < len(self._known) else None
        if offset - below[0] <= _NEAR_BYTES:
            number = below[1] + self._count(below[0], offset)
        elif above is not None and above[0] - offset <= _NEAR_BYTES:
            number = above[1] - self._count(offset, above[0])
        else:
            return None
        self._learn(offset, number)
        return number

    def know_end(self, size_bytes: int, num_lines: int) -> None:
        """Take over the scanner's count: the file has `num_lines` lines up to `size_bytes`."""
        last = self._io.read(self._path, max(0, size_bytes - 2), 2).rstrip(b"\0")
        self._learn(size_bytes, num_lines + 1 if last.endswith(b"\n") else num_lines)

    def _learn(self, offset: int, number: int) -> None:
        with self._lock:
            at = bisect_right(self._known, (offset, 1 << 62))
            if self._known[at - 1][0] != offset:
                insort(self._known, (offset, number))

    def _count(self, start: int, end: int) -> int:
        return sum(piece.count(b"\n") for _, piece in self._pieces(start, end))

    def _start_of(self, number: int, size: int, heed: Heed) -> int:
        """Offset of the line with this number; the end of the file if it has fewer lines."""
        with self._lock:
            at = bisect_right(self._known, number, key=lambda known: known[1])
            below = self._known[at - 1] if at else (0, 1)
            above = self._known[at] if at < len(self._known) else None
        if above is not None and above[1] - number < number - below[1]:
            return self._count_back(above, number, heed)
        offset, reached = below
        for start, piece in self._pieces(offset, size):
            if reached + (count := piece.count(b"\n")) >= number:
                return start + _nth_start(piece, number - reached)
            reached += count
            offset = start + len(piece)
            self._learn(offset, reached)
            _go_on(heed, offset - below[0], size - below[0])
        return size

    def _count_back(self, above: tuple[int, int], number: int, heed: Heed) -> int:
        reached = above[1]
        for start, piece in self._pieces_back(above[0]):
            count = piece.count(b"\n")
            if reached - count < number or start == 0:
                return start + _nth_start(piece, number - (reached - count))
            reached -= count
            _go_on(heed, above[0] - start, above[0])
        return 0

    # Searching

    def _found(self, look: LogLook, size: int, heed: Heed) -> LogWindow:
        """The window around the next match of a search; without a match, around its start."""
        offset = size if look.offset is None else min(look.offset, size)
        place_in = self._error_place if look.words is None else partial(_place_of, look.words)
        pieces = self._pieces_back(offset) if look.is_backwards else self._pieces(offset, size)
        total, done = (offset if look.is_backwards else size - offset), 0
        for start, piece in pieces:
            text = _text_of(piece)
            place = place_in(text, look.is_backwards)
            if place >= 0:
                return self._around(start + _nth_start(piece, text.count(b"\n", 0, place)), size)
            done += len(piece)
            _go_on(heed, min(done, total), total)
        return self._around(offset, size, is_asked=False)

    def _error_place(self, text: bytes, is_last: bool) -> int:
        """Offset of the first, or last, line that reports an error; -1 if there is none."""
        found, end = -1, -1
        for _, place, _ in self._error_words.find_matches_as_indexes(text, overlapping=False):
            if place < end:
                continue  # this line was already checked
            start = text.rfind(b"\n", 0, place) + 1
            newline = text.find(b"\n", place)
            end = len(text) if newline < 0 else newline
            if _ERROR.search(text, start, min(end, start + MAX_SEARCHED_CHARS)):
                found = start
                if not is_last:
                    return found
        return found

    def _pieces(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) of pieces between two offsets. A piece ends at a line's end, unless the line is
        longer."""
        while start < end:
            data = self._io.read(self._path, start, min(_PIECE_BYTES, end - start))
            if not data:
                return
            is_last = start + len(data) >= end
            cut = len(data) if is_last else data.rfind(b"\n") + 1
            if cut:
                yield start, data[:cut]
                start += cut
            else:
                yield start, data
                start += len(data) - _SEAM_BYTES

    def _pieces_back(self, end: int) -> Iterator[tuple[int, bytes]]:
        """The same from an offset back to the file's beginning, last piece first."""
        while end > 0:
            start = max(0, end - _PIECE_BYTES)
            data = self._io.read(self._path, start, end - start)
            if not data:
                return
            cut = data.find(b"\n", 0, len(data) - 1) + 1 if start else 0
            yield start + cut, data[cut:]
            end = start + cut if cut or not start else start + _SEAM_BYTES


def _is_little(texts: list[bytes]) -> bool:
    """True if these lines may not fill the pager."""
    return len(texts) < _FEW_LINES and sum(map(len, texts)) < _FEW_BYTES


def _lines_of(data: bytes, first: int) -> tuple[list[bytes], list[int]]:
    """The lines, decoded, and the offset of each; `first` is the offset of the first."""
    pieces = data.split(b"\n")
    if not pieces[-1].strip(b"\0") and len(pieces) > 1:
        pieces.pop()
    offsets = [first]
    for piece in pieces[:-1]:
        offsets.append(offsets[-1] + len(piece) + 1)
    return _text_of(data).split(b"\n")[: len(pieces)], offsets


def both_by_time(one: LogWindow, other: LogWindow) -> LogWindow:
    """Merge the lines of two windows by time; a line without a time stays below the line before it.

    Only the period that both windows cover is merged: if a window does not begin its file, earlier lines of
    the other one are left out. Raises UserError if one of them has no times.
    """
    timed = [(_timed(window), window) for window in (one, other) if window.lines]
    for times, window in timed:
        if not any(times):
            raise UserError(f"{window.file}: its lines have no times, so the streams cannot be put into one")
    first_s = max((min(filter(None, times)) for times, window in timed if not window.has_start), default=0.0)
    rows = sorted(
        (
            (time_s, at, index)
            for at, (times, _) in enumerate(timed)
            for index, time_s in enumerate(times)
            if time_s >= first_s
        ),
    )
    windows = [window for _, window in timed]
    return LogWindow(
        one.file,
        tuple(windows[at].lines[index] for _, at, index in rows),
        tuple(range(len(rows) + 1)),
        len(rows),
        errors=frozenset(place for place, (_, at, index) in enumerate(rows) if index in windows[at].errors),
        streams=tuple(windows[at].file for _, at, _ in rows),
    )


def _timed(window: LogWindow) -> list[float]:
    """The time of each line; a line without one has the time of the line above, or 0 at the beginning."""
    times: list[float] = []
    for text in window.lines:
        times.append(parse_time_s(text) or (times[-1] if times else 0.0))
    return times


def _go_on(heed: Heed, done: int, total: int) -> None:
    if not heed(done, total):
        raise Stopped


def _place_of(words: str, text: bytes, is_last: bool) -> int:
    """Offset of the first, or last, occurrence of the words; -1: none. Small letters match ASCII capitals
    only."""
    text = text.lower() if folds_case(words) else text
    return text.rfind(words.encode()) if is_last else text.find(words.encode())


def _text_of(data: bytes) -> bytes:
    """The same lines, decoded from UTF-16 and without colours, for a search."""
    text = as_utf8(without_holes(data))[0] if b"\0" in data else data
    return ANSI.sub(b"", text) if b"\x1b" in text else text


def _nth_start(data: bytes, number: int) -> int:
    """Offset behind this many newlines."""
    place = 0
    for _ in range(number):
        place = data.find(b"\n", place) + 1
    return place
