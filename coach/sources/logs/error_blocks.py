"""Find the error blocks of a text; each block is read once, even if many hits lie in it.

Only blocks around hits are read: a log that repeats an error forever costs no more than its hits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from coach.model.error_block import ErrorBlock, ErrorKind
from coach.model.training.log import LogHit
from coach.sources.logs.error_reader import (
    HEADS,
    MAX_BLOCK_LINES,
    MAX_CHAIN,
    ErrorReader,
    is_chained,
    is_exception,
    is_frame,
)
from coach.sources.logs.line_text import depth_of, end_of_line, is_source_line, start_of_line

CONTEXT_BYTES = 256 << 10
"""How many bytes above a line are searched for the head of its block."""
_NEAR_BYTES = 4 << 10
"""How many bytes above a source line are searched for its frame."""
_MAX_LINES_ABOVE = 12
_MAX_HEADS = 64
"""Largest number of other ranks' heads between a line and the head of its block."""


class Line(NamedTuple):
    """One line of a text, without the prefixes of its log and of its launcher."""

    number: int
    rank: int | None
    words: str


class Around(NamedTuple):
    """The surroundings of a line."""

    head: int
    """Offset of the block's first line."""
    reader: ErrorReader | None
    """None outside all blocks."""
    shows_program: bool
    """True for a frame or a source line, in a block or in the remains of one."""


@dataclass(slots=True)
class LogText:
    """A text with line numbers."""

    data: bytes
    read: Callable[[bytes], tuple[int | None, str]]
    """Splits a line into (rank, words)."""
    are_empty_skipped: bool
    """True if the log has empty lines between its lines; they are skipped."""
    _place: int
    _num_before: int
    """Number of line ends before `_place`."""

    def number_at(self, place: int) -> int:
        """The line number at an offset. Cheap if the offset is near the last one."""
        low, high = sorted((place, self._place))
        num_between = self.data.count(b"\n", low, high)
        self._num_before += num_between if place > self._place else -num_between
        self._place = place
        return self._num_before + 1

    def before(self, place: int) -> Iterator[tuple[int, int | None, str]]:
        """(offset, rank, words) of the lines above an offset, nearest first."""
        lowest, end = max(0, place - CONTEXT_BYTES), place
        for _ in range(MAX_BLOCK_LINES * 8):
            if end <= lowest:
                return
            end -= 2 if self.data[end - 2 : end] == b"\r\n" else 1
            start = start_of_line(self.data, end, lowest)
            if start < end or not self.are_empty_skipped:
                yield (start, *self.read(self.data[start:end]))
            end = start

    def after(self, place: int) -> Iterator[Line]:
        """The lines from an offset on, without the empty line between a carriage return and a newline."""
        number, counted = self.number_at(place), place
        while place < len(self.data):
            end = end_of_line(self.data, place)
            is_torn = end == place and self.data[place - 1 : place] == b"\r"
            if not is_torn and (end > place or not self.are_empty_skipped):
                number += self.data.count(b"\n", counted, place)
                counted = place
                yield Line(number, *self.read(self.data[place:end]))
            place = end + 1


@dataclass(slots=True)
class OpenBlock:
    """A block whose end has not been read yet, and the hits that wait for it."""

    reader: ErrorReader
    chain: tuple[ErrorBlock, ...]
    hits: list[LogHit]

    def complete_hits(self) -> list[LogHit]:
        block = self.reader.build(self.chain)
        return [replace(hit, block=block) if self.reader.has(hit.line) else hit for hit in self.hits]


class ErrorBlocks:
    """Finds the error block around a line of a text."""

    def __init__(self, text: LogText, file: str) -> None:
        self._text = text
        self._file = file
        self._heads = _places_of_heads(text)
        self._readers: dict[int, ErrorReader] = {}
        self._built: dict[int, ErrorBlock] = {}

    def around(self, start: int, line: Line) -> Around:
        """The surroundings of the line that begins at offset `start`."""
        found = self._headed(start, line)
        if found is None and is_exception(line.words):
            found = self._headless(start, line)
        head, reader = found or (start, None)
        if reader is not None and reader.shows_program(line.number):
            return Around(head, reader, shows_program=True)
        return Around(head, reader, self._is_source(start, line))

    def _is_source(self, start: int, line: Line) -> bool:
        """True for a source line outside all blocks, such as one in a logged stack or below a warning."""
        if self._text.data[start - 1 : start] == b"\r":
            return False  # it rewrites the line of a progress bar
        near = max(0, start - _NEAR_BYTES)
        is_near = any(self._text.data.find(words, near, start) >= 0 for words in (b'File "', b"Warning: "))
        before = ((rank, words) for _, rank, words in self._text.before(start)) if is_near else ()
        return is_source_line(line.words, line.rank, before)

    def _headed(self, start: int, line: Line) -> tuple[int, ErrorReader] | None:
        nearest = bisect_right(self._heads, start) - 1
        for head in reversed(self._heads[max(0, nearest - _MAX_HEADS) : nearest + 1]):
            if head < start - CONTEXT_BYTES:
                break
            reader = self._reader_at(head)
            if reader.rank == line.rank:
                return (head, reader) if reader.can_have(line.number) else None
        return None

    def last(self, count: int) -> tuple[ErrorBlock, ...]:
        """The last `count` blocks of the text that begin with a head, and the frames at its end."""
        headed, cut = [self.block_at(head) for head in self._heads[-count:]], self._cut_at_end()
        return tuple([*headed, cut][-count:] if cut is not None else headed)

    def block_at(self, head: int) -> ErrorBlock:
        if head not in self._built:
            self._built[head] = self._reader_at(head).build(self.chain_of(head))
        return self._built[head]

    def chain_of(self, head: int) -> tuple[ErrorBlock, ...]:
        """The blocks that led to the block at `head`, oldest first."""
        readers: list[ErrorReader] = []
        index = bisect_right(self._heads, head) - 1
        reader = self._reader_at(head)
        while is_chained(reader.above) and len(readers) < MAX_CHAIN:
            index = next(
                (
                    i
                    for i in range(index - 1, max(-1, index - _MAX_HEADS), -1)
                    if self._reader_at(self._heads[i]).rank == reader.rank
                ),
                -1,
            )
            if index < 0:
                break
            reader = self._reader_at(self._heads[index])
            readers.append(reader)
        chain: tuple[ErrorBlock, ...] = ()
        for reader in reversed(readers):
            chain = (*chain, reader.build(chain))
        return chain

    def _reader_at(self, head: int) -> ErrorReader:
        reader = self._readers.get(head)
        if reader is None:
            first = next(self._text.after(head))
            reader = self._read(head, ErrorReader(self._file, first.rank, self._above(head, first.rank)))
        return reader

    def _read(self, first: int, reader: ErrorReader) -> ErrorReader:
        """Feed the reader from an offset on, until its block is closed or the text ends."""
        self._readers[first] = reader
        for line in self._text.after(first):
            reader.take(line.number, line.rank, line.words)
            if reader.is_closed:
                break
        return reader

    def _above(self, place: int, rank: int | None) -> tuple[str, ...]:
        """The last two non-empty lines above an offset, nearest last."""
        lines = (
            words
            for _, line_rank, words in islice(self._text.before(place), _MAX_LINES_ABOVE)
            if line_rank == rank and words.strip()
        )
        return tuple(islice(lines, 2))[::-1]

    def _headless(self, start: int, line: Line) -> tuple[int, ErrorReader] | None:
        """The frames directly above an exception whose head is not in the text."""
        first = self._first_frame(start, line.rank)
        if first is None:
            return None
        reader = self._readers.get(first)
        if reader is None:
            reader = self._read(first, ErrorReader(self._file, line.rank, kind=ErrorKind.HEADLESS))
        return (first, reader) if reader.can_have(line.number) else None

    def _first_frame(self, start: int, rank: int | None) -> int | None:
        """Offset of the first of the frames and source lines directly above an offset; None without a
        frame."""
        first, has_frame, is_flat = start, False, False
        for place, line_rank, words in self._text.before(start):
            if line_rank != rank:
                continue
            if not words.strip():
                break
            is_flat_below, is_flat = is_flat, depth_of(words) == 0 and words[:1] not in "│╰"
            if is_flat_below and not (is_flat and is_frame(words)):
                break  # the line below is no source line of a frame that lost its indentation
            if is_frame(words):
                first, has_frame, is_flat = place, True, False
            elif not is_flat:
                first = place
        return first if has_frame else None

    def _cut_at_end(self) -> ErrorBlock | None:
        """The frames with which the text ends, if they are of no block that has a head."""
        end = len(self._text.data)
        _, rank, _ = next(self._text.before(end), (end, None, ""))
        first = self._first_frame(end, rank)
        if first is None or self._headed(first, next(self._text.after(first))) is not None:
            return None
        cut = self._read(first, ErrorReader(self._file, rank, kind=ErrorKind.HEADLESS)).build(())
        # The frames of a fault handler lack the comma; they show what runs, and end nothing.
        return cut if ", in " in cut.lines[0] else None


def _places_of_heads(text: LogText) -> list[int]:
    """Offsets of the lines that contain a head."""
    places: set[int] = set()
    for words in HEADS:
        found = text.data.find(words)
        while found >= 0:
            places.add(start_of_line(text.data, found, 0))
            found = text.data.find(words, found + len(words))
    return sorted(places)
