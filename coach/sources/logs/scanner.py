"""Scan a log's bytes for signatures, each byte once, in pieces of any size.

A healthy log must cost very little: only lines that pass `line_filter` are decoded, stripped of prefixes and
searched. Pure: bytes in, hits out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from operator import itemgetter
from typing import NamedTuple

from coach.model.error_block import ErrorBlock
from coach.model.training.log import (
    FIRST_LINE,
    MARK,
    MAX_FIRST_HITS,
    MAX_LINE_BYTES,
    LogHit,
    LogTail,
    Signature,
)
from coach.sources.logs.columns import HEADER, Columns
from coach.sources.logs.decoding import Order, as_utf8, is_no_text, join_pieces, without_holes
from coach.sources.logs.error_blocks import CONTEXT_BYTES, ErrorBlocks, Line, LogText, OpenBlock
from coach.sources.logs.error_reader import ErrorReader
from coach.sources.logs.first_lines import NUM_LINES, FirstLines
from coach.sources.logs.layout import Layout, join_broken, join_messages, layout_of
from coach.sources.logs.line_filter import Block, LineFilter, is_digit_blind
from coach.sources.logs.line_text import (
    ANSI,
    decode,
    end_of_line,
    is_below_error,
    last_state,
    parse_time_s,
    split_prefix,
    start_of_words,
    with_signals_apart,
    without_verdict,
)

MAX_TAIL_LINES = 400
BINARY_CHECK_BYTES = 8 << 10
LAYOUT_BYTES = 64 << 10
"""The layout of a log is learned from this many bytes at its beginning."""
MAX_LAST_HITS = 100
"""For each signature only the first and the last hits are kept; the lines between are not decoded."""
_PASSING_HITS = 5
"""While more of the file is waiting, only the last 5 hits of a block are kept; loss values are always
kept."""

_HEADER = Signature("", "header of a table", ("loss", "Loss", "LOSS"), HEADER)
_NO_NUMBER = re.compile(rb"(?i)\b(?:nan|inf)")
_MANY_ROWS = 4 * MAX_LAST_HITS
"""Of a piece with more lines of a table, only the last ones are read, and those that hold a NaN."""

MAX_TAIL_BLOCKS = 12
"""Number of error blocks that are kept with the end of a log."""


class _Line(NamedTuple):
    """One decoded line."""

    raw: str
    """The line as it is in the log."""
    text: str
    """The line without the prefix that nearly all lines of this log have."""
    rank: int | None
    words: str
    """The line without the launcher's prefix as well."""


class LogScanner:
    """Takes bytes and returns hits. The hits of a line are returned when the line is complete, or at `flush`.

    They include a mark where one of the log's first lines occurs again.
    """

    def __init__(self, signatures: Sequence[Signature], file: str = "", num_lines_before: int = 0) -> None:
        self._file = file
        self._of_rows = [index for index, each in enumerate(signatures) if each.reads_rows]
        self._signatures = (*signatures, *([_HEADER] if self._of_rows else []))
        self._columns = Columns()
        self._num_rows = 0
        self._headers: list[int] = []
        """Offsets in the block that is scanned."""
        self._first_lines = FirstLines()
        self._patterns: dict[int, re.Pattern[str]] = {}
        self._filter = LineFilter(self._signatures)
        self._layout = Layout()
        self._own_prefix = re.compile("")
        self._sample = b""
        self._num_learned = -1
        self._context = b""
        self._is_context_cut = False
        self._pending = b""
        self._is_overlong = False
        self._num_bytes = 0
        self._head = b""
        self._order: Order | None = None
        self._is_head_text: bool | None = None
        self._num_newlines = num_lines_before
        self._held: list[LogHit] = []
        self._open: list[OpenBlock] = []
        self._flushed: set[tuple[str, str]] = set()
        """Kinds of the hits that `flush` returned for the unfinished line."""
        self._num_flushed = 0
        """Bytes of that line: a signal may be set apart in it."""
        self._is_passing = False
        self._num_hits: Counter[int] = Counter()

    def feed(self, data: bytes, is_more: bool = False) -> list[LogHit]:
        """Scan more of the log. Hits that need later bytes are returned by a later call.

        `is_more` is True if the next bytes can be read at once: the end of this piece is then not the end of
        the log.
        """
        self._is_passing = is_more
        self._num_bytes += len(data)
        data = without_holes(data)
        if self._is_head_text is None:
            self._head = join_pieces(self._head, data)[:BINARY_CHECK_BYTES]
            if len(self._head) >= BINARY_CHECK_BYTES:
                self._is_head_text, self._head = not is_no_text(self._head), b""
        if self._is_head_text is False:
            self._held, self._open, self._context, self._pending = [], [], b"", b""
            return []
        self._learn_layout(data)
        hits = self._held + self._take(data)
        # Hits are held back until enough bytes were read to know that the file is text.
        self._held = hits if self._is_head_text is None else []
        return [] if self._held else hits

    @property
    def is_binary(self) -> bool:
        """True if the file is not text, judged by the bytes read so far."""
        return is_no_text(self._head) if self._is_head_text is None else not self._is_head_text

    def _unended(self) -> bytes:
        """The beginning of the unfinished last line, and the lines above it that wait for it, as text."""
        text = self._clean(ANSI.sub(b"", as_utf8(self._pending, self._order)[0]))
        return join_messages(text, is_end=True)[0] if self._layout.width is None else text

    def _learn_layout(self, data: bytes) -> None:
        """Learn the layout from the beginning of the log; repeated each time twice as many bytes are
        known."""
        if self._num_learned >= LAYOUT_BYTES:
            return
        self._sample = join_pieces(self._sample, data[: LAYOUT_BYTES - len(self._sample)])
        if len(self._sample) < 2 * self._num_learned:
            return
        self._num_learned = len(self._sample)
        layout = layout_of(as_utf8(self._sample)[0])
        if layout.prefix != self._layout.prefix:
            self._own_prefix = re.compile(f"(?:{layout.prefix})?")
        self._layout = layout

    def _line_of(self, data: bytes) -> _Line:
        raw = decode(data)
        text = self._without_own_prefix(raw)
        return _Line(raw, text, *split_prefix(text))

    def _without_own_prefix(self, line: str) -> str:
        return self._own_prefix.sub("", line, count=1) if self._layout.prefix else line

    def flush(self) -> list[LogHit]:
        """Return also the hits of an unfinished last line or traceback: the file ends here, until it
        grows."""
        self._is_passing = False
        if self.is_binary:
            return []
        hits, self._held = [*self._held], []
        ended, unended = self._joined(self._unended(), is_end=True)
        data, start = self._context + ended + unended.replace(b"\n", b""), len(self._context)
        text = self._text_of(data, start)
        hits += self._close_blocks(text, start)
        for index, hit in self._scan(text, data[start:]):
            self._flushed.add(_kind_of(self._signatures[index]))
            self._num_flushed = len(data) - start
            hits += [hit] if hit is not None else []
        hits += [hit for opened in self._open for hit in opened.complete_hits()]
        self._open = []
        return hits

    def _text_of(self, data: bytes, start: int) -> LogText:
        """A text whose line ends before `start` are already counted."""
        are_empty_skipped = self._layout.is_spaced or self._layout.width is not None
        return LogText(data, self._split, are_empty_skipped, start, self._num_newlines)

    def _split(self, data: bytes) -> tuple[int | None, str]:
        return split_prefix(self._without_own_prefix(decode(data)))

    def tail(self) -> LogTail:
        """The last lines as a terminal shows them, with the last state of progress bars."""
        if self.is_binary:
            note = f"binary file of {self._num_bytes} bytes: not searched, not shown"
            return LogTail(self._file, 1, (note,), self._num_bytes, 1, is_binary=True)
        unended = self._unended()
        data = self._context + unended
        blocks = ErrorBlocks(self._text_of(data, len(self._context)), self._file).last(MAX_TAIL_BLOCKS)
        lines = data.split(b"\n")
        num_lines = self._num_newlines + unended.count(b"\n") + 1
        is_torn = bool(lines[-1]) and b"\r" not in unended
        if not lines[-1]:
            lines.pop()
            num_lines -= 1
        if self._is_context_cut and len(lines) > 1:
            del lines[0]
        shown = tuple(last_state(decode(line)) for line in lines[-MAX_TAIL_LINES:])
        words = tuple(map(self._without_own_prefix, shown)) if self._layout.prefix else ()
        first_line = num_lines - len(shown) + 1
        tail = LogTail(self._file, first_line, shown, self._num_bytes, num_lines, words=words, blocks=blocks)
        return replace(tail, is_torn=is_torn)

    def _take(self, data: bytes) -> list[LogHit]:
        """Cut off the complete lines and scan them; keep the rest."""
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if end == 0:
            self._keep(data)
            return []
        block = data[:end]
        if self._is_overlong:
            block = block[end_of_line(block, 0) :]
        block, self._order = as_utf8(_bounded(join_pieces(self._pending, block)), self._order)
        if b"\x1b" in block:
            block = ANSI.sub(b"", block)
        block, self._pending = self._joined(self._clean(block), is_end=False)
        self._is_overlong = False
        self._keep(data[end:])
        data, start = self._context + block, len(self._context)
        text = self._text_of(data, start)
        hits = self._close_blocks(text, start) if self._open else []
        self._headers = []
        hits += [hit for _, hit in self._scan(text, block) if hit is not None]
        hits += self._rows(text, block)
        hits += self._started_again(text, block)
        self._flushed = set()
        self._num_newlines = text.number_at(len(data)) - 1
        self._is_context_cut = self._is_context_cut or len(data) > CONTEXT_BYTES
        self._context = data[-CONTEXT_BYTES:]
        return hits

    def _clean(self, text: bytes) -> bytes:
        """The text that follows the context, without coach's own verdict and with signals apart from bars."""
        return with_signals_apart(without_verdict(text), self._context.endswith(b"\r"))

    def _joined(self, block: bytes, is_end: bool) -> tuple[bytes, bytes]:
        """Complete lines, and the beginning of a line that may continue in the next bytes."""
        if self._layout.width is not None:
            return join_broken(block, self._layout.width)
        return join_messages(block, is_end)

    def _keep(self, rest: bytes) -> None:
        if not self._is_overlong:
            self._pending = join_pieces(self._pending, rest[: MAX_LINE_BYTES - len(self._pending)])
            self._is_overlong = len(self._pending) >= MAX_LINE_BYTES

    def _scan(self, text: LogText, block: bytes) -> Iterator[tuple[int, LogHit | None]]:
        """(index of the signature, hit) for the lines of the block, in order.

        The hit is None if its error block is not complete yet.

        The text ends with the block. The part before the block was scanned already; it is searched only for
        heads of error blocks.
        """
        start = len(text.data) - len(block)
        kept = self._filter.look_at(block)
        lines: dict[int, _Line] = {}
        found = [
            (place, index, match)
            for index in sorted(kept.places)
            for place, match in self._matches(index, kept, lines)
        ]
        if not found:
            return
        # Signatures of the same rule and name yield one hit per line: that of the first signature that
        # matches.
        first: dict[tuple[int, tuple[str, str]], tuple[int, int, re.Match[str]]] = {}
        for place, index, match in sorted(found, key=itemgetter(0, 1)):
            first.setdefault((place, _kind_of(self._signatures[index])), (place, index, match))
        blocks = ErrorBlocks(text, self._file)
        for place, index, match in first.values():
            signature, line = self._signatures[index], lines[place]
            if signature is _HEADER:
                self._headers.append(place)
                continue
            number = text.number_at(start + place)
            around = blocks.around(start + place, Line(number, line.rank, line.words))
            if not signature.reads_source and around.shows_program:
                continue
            fields = {key: value for key, value in match.groupdict().items() if value is not None}
            hit = replace(self._hit(_kind_of(signature), number, line, fields), wording=signature)
            if around.reader is None:
                yield index, hit
            elif around.reader.is_closed:
                yield index, replace(hit, block=blocks.block_at(around.head))
            else:
                self._wait(hit, around.reader, blocks.chain_of(around.head))
                yield index, None

    def _rows(self, text: LogText, block: bytes) -> Iterator[LogHit]:
        """The hits of the rows below the header of a table."""
        if not self._columns.is_open and not self._headers:
            return
        start = len(text.data) - len(block)
        for place, data in self._lines_of_table(block):
            line = self._line_of(data)
            row = self._columns.read(line.words)
            if row is None:
                continue
            self._num_rows += 1
            for index in self._of_rows:
                signature = self._signatures[index]
                found = search(signature, self._pattern(index), row)
                if found is not None:
                    number, fields = text.number_at(start + place), found.groupdict()
                    yield replace(self._hit(_kind_of(signature), number, line, fields), row=row)

    def _lines_of_table(self, block: bytes) -> Iterator[tuple[int, bytes]]:
        """(offset, line) from the open table's rows, or the first header, to the end of the block."""
        place = 0 if self._columns.is_open else self._headers[0]
        lines: list[tuple[int, bytes]] = []
        while place < len(block):
            end = end_of_line(block, place)
            lines.append((place, block[place:end]))
            place = end + 1
        few = max(0, MAX_FIRST_HITS - self._num_rows)
        if len(lines) <= few + _MANY_ROWS:
            yield from lines
            return
        headers = frozenset(self._headers)
        for count, (place, data) in enumerate(lines, 1):
            is_wanted = count <= few or count > len(lines) - _MANY_ROWS or place in headers
            if is_wanted or _NO_NUMBER.search(data):
                yield place, data

    def _started_again(self, text: LogText, block: bytes) -> Iterator[LogHit]:
        """A mark for each line that repeats one of the log's first lines."""
        if not self._first_lines.is_learned:
            for first in block.splitlines()[:NUM_LINES]:
                if not self._first_lines.is_learned:
                    self._first_lines.learn(self._split(first)[1])
        start = len(text.data) - len(block)
        for place, data, pattern in self._first_lines.places(block):
            line, number = self._line_of(data), text.number_at(start + place)
            if number > NUM_LINES and pattern.match(line.words):
                yield self._hit((MARK, FIRST_LINE), number, line, {})

    def _hit(self, kind: tuple[str, str], number: int, line: _Line, fields: dict[str, str]) -> LogHit:
        return LogHit(*kind, self._file, number, line.text, fields, line.rank, parse_time_s(line.raw))

    def _wait(self, hit: LogHit, reader: ErrorReader, chain: tuple[ErrorBlock, ...]) -> None:
        """Hold back a hit until its block is complete."""
        opened = next((each for each in self._open if each.reader is reader), None)
        if opened is None:
            opened = OpenBlock(reader, chain, [])
            self._open.append(opened)
        opened.hits.append(hit)

    def _close_blocks(self, text: LogText, start: int) -> list[LogHit]:
        """The hits whose error block ends in the lines from `start` on."""
        closed: list[LogHit] = []
        for line in text.after(start) if self._open else ():
            for opened in self._open:
                opened.reader.take(line.number, line.rank, line.words)
            closed += [hit for each in self._open if each.reader.is_closed for hit in each.complete_hits()]
            self._open = [opened for opened in self._open if not opened.reader.is_closed]
            if not self._open:
                break
        return closed

    def _matches(
        self, index: int, kept: Block, lines: dict[int, _Line]
    ) -> Iterator[tuple[int, re.Match[str]]]:
        """(offset of the line, match) of one signature: the log's first MAX_FIRST_HITS, then the block's
        last."""
        signature, pattern = self._signatures[index], self._pattern(index)
        is_blind = is_digit_blind(signature.pattern) and is_digit_blind(signature.unless or "")
        num_flushed = self._num_flushed if _kind_of(signature) in self._flushed else -1

        def matches(places: Iterable[int]) -> Iterator[tuple[int, re.Match[str]]]:
            for place in places:
                failed = kept.failed[place]
                if index in failed or place <= num_flushed:
                    continue
                line = lines.get(place)
                if line is None:
                    line = lines[place] = self._line_of(kept.line(place))
                found = search(signature, pattern, line.words)
                if found is not None:
                    yield place, found
                elif is_blind:
                    failed.add(index)

        places = kept.places[index]
        reached = -1
        num_missing = MAX_FIRST_HITS - self._num_hits[index]
        if num_missing > 0:
            for reached, found in islice(matches(places), num_missing):
                yield reached, found
                self._num_hits[index] += 1
            if self._num_hits[index] < MAX_FIRST_HITS:
                return
        is_curve = "value" in pattern.groupindex
        max_last = _PASSING_HITS if self._is_passing and not is_curve else MAX_LAST_HITS
        later = takewhile(lambda place: place > reached, reversed(places))
        yield from islice(matches(later), max_last)

    def _pattern(self, index: int) -> re.Pattern[str]:
        """The signature's pattern, compiled when it is first needed."""
        pattern = self._patterns.get(index)
        if pattern is None:
            pattern = self._patterns[index] = re.compile(self._signatures[index].pattern)
        return pattern


def search(signature: Signature, pattern: re.Pattern[str], words: str) -> re.Match[str] | None:
    """The match of a signature in the words of one line; `pattern` is its compiled pattern."""
    start = start_of_words(words) if signature.in_error else 0
    if start is None:
        return None
    found = pattern.search(words, start, signature.max_chars)
    if found is None or (signature.is_heeded and is_below_error(words)):
        return None
    is_other = signature.unless is not None and re.search(signature.unless, words)
    return None if is_other else found


def _kind_of(signature: Signature) -> tuple[str, str]:
    return signature.rule, signature.name


def _bounded(data: bytes) -> bytes:
    """Complete lines, each cut to MAX_LINE_BYTES."""
    pieces: list[bytes] = []
    kept = start = 0
    while len(data) - start > MAX_LINE_BYTES:
        window = start + MAX_LINE_BYTES + 1
        end = max(data.rfind(b"\n", start, window), data.rfind(b"\r", start, window)) + 1
        if end:
            start = end
        else:
            pieces.append(data[kept : start + MAX_LINE_BYTES])
            kept = start = end_of_line(data, start + MAX_LINE_BYTES)
    return b"".join([*pieces, data[kept:]]) if pieces else data
