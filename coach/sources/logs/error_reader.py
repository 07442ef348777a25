"""Read an error block line by line, starting at its head.

A log is read in pieces that may cut a block, and lines of other ranks may lie within it. A reader keeps the
lines of one rank, at most MAX_BLOCK_LINES, and parses the frames only when the block is built.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from coach.model.error_block import ErrorBlock, ErrorKind, Frame
from coach.sources.logs.line_text import depth_of

MAX_BLOCK_LINES = 400
MAX_CHAIN = 20
"""Largest number of blocks of a chain; the last ones are kept."""
_MAX_MESSAGE_LINES = 40
_MAX_FOREIGN_LINES = 5
"""Largest number of foreign lines in a block: other threads print between the frames."""

TRACEBACK = "Traceback (most recent call last)"
_FATAL, _NATIVE = "Fatal Python error: ", "terminate called "
_ELASTIC = "Root Cause (first observed failure):"
HEADS = tuple(head.encode() for head in (TRACEBACK, _FATAL, _NATIVE, _ELASTIC))
"""A line that contains one of these begins a block."""
CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)

_LOGGED = re.compile(
    r"(?P<level>[VIWEF])\d{4} [\d:.]{8,20} (?:\d{1,9} )?\S{1,200}\.(?:py|cpp):\d{1,6}\]"
    r"(?: \[[\w/, ]{1,40}\]){0,3} ?"
    r"|(?:\S{1,60} ){0,4}?\[?(?P<word>WARNING|ERROR|CRITICAL)\b\]?"
)
"""A logger's prefix. glog repeats it before each line of a traceback."""
_EXCEPTION = re.compile(
    r"(?P<type>(?:[\w<>]{1,80}\.){0,12}(?:_{0,3}[A-Z]\w{0,120}|error|timeout|gaierror|herror))"
    r"(?:[(\[][^\])]{0,80}[\])])?(?::? (?P<words>.*)|:?\s*$)"
)
_NAMED_ERROR = re.compile(
    r"(?:\w{1,80}\.){0,12}(?:\w{0,80}(?:Error|Exception|Exit|Interrupt|Iteration)\b|[A-Z]\w{1,80}: )"
)
_FRAME = re.compile(
    r'[\s|]*File "?(?P<file>[^"\n]{1,400}?)"?(?:, line |:)(?P<line>\d{1,9})(?:,? in (?P<name>.{1,200}))?$'
)
_BOXED = re.compile(r"│ (?P<file>[^\s:]{1,400}):(?P<line>\d{1,9}) in (?P<name>\S{1,200})")
_CELL = re.compile(
    r"^(?:File )?(?P<file>(?:[~/<]|\w:\\)\S{0,400}?|Cell In\s?\[\d{1,5}\])"
    r"(?:(?::|, line )(?P<line>\d{1,9}))?(?:,? in (?P<name>\S{1,200}).*)?$"
)
_NATIVE_FRAME = re.compile(
    r"frame #\d{1,4}: (?P<name>.{1,300}?) \(0x[0-9a-f]{1,16} in (?P<file>[^)]{1,300})\)"
)
_MARKS = re.compile(r"[\s|^~]*$")
_OF_FATAL = re.compile(
    r"\s*$|\s+File \"|(?:Current t|T)hread 0x|Extension modules: |Python runtime |Stack \(most|\s+\.\.\.|\s+<"
)
_THREAD = re.compile(r"(?P<crashed>Current thread 0x|Stack \(most)|Thread 0x")
_OF_NATIVE = re.compile(r"\s*$|\s+\S|frame #\d|Exception raised from |Compile with |.{0,60}For debugging ")
_THROWN = re.compile(r"terminate called after throwing an instance of '(?P<type>[^']{1,200})'")
_SAID = re.compile(r"\s{0,8}what\(\): {1,4}(?P<words>.*)")
_FIELD = re.compile(r"\s{0,8}(?P<key>[a-z_]{1,20}) {0,12}: (?P<value>.*)")
_PROCESS = re.compile(
    r"^Process (?P<process>[\w-]{1,80}):|^-- (?P<spawned>Process \d{1,6}) terminated with the following error"
    r"|Exception in thread (?P<thread>[^:]{1,80})"
    r"|Caught \w{1,80} in (?P<worker>DataLoader worker process \d{1,6}|replica \d{1,6})"
)
_IGNORED = (
    "Exception ignored in",
    "--- Logging error ---",
    "Jax plugin configuration error: ",
    "WON'T CONVERT",
    " Kernel interrupted: ",
)
"""These lines precede a block that Python, its logging, JAX, torch.compile or a notebook server printed and
ignored."""
_TIDYING = ", in _run_finalizers"
"""A frame of multiprocessing's clean-up, whose exceptions end no program."""
_BY_A_SIGNAL = "SignalException"
_PLAIN = (ErrorKind.PYTHON, ErrorKind.GROUP)


@dataclass(slots=True)
class ErrorReader:
    """One block, as far as it has been read."""

    file: str
    rank: int | None
    above: tuple[str, ...] = ()
    """The last two non-empty lines above the head, nearest last."""
    kind: ErrorKind | None = None
    """Derived from the head, unless the block has none."""
    is_closed: bool = False
    _level: str | None = None
    _is_logged: bool = False
    """True if each line has a logger's prefix."""
    _is_embedded: bool = False
    """True if other words precede the head: the other lines then have an unknown indentation."""
    _margin: int = 0
    """Largest indentation of the line with the exception's type."""
    _named: str = ""
    """The exception's type in the head of a notebook's traceback."""
    _lines: list[tuple[int, str]] = field(default_factory=list)
    _error: int | None = None
    """Index of the line with type and message."""
    _foreign: list[tuple[int, str]] = field(default_factory=list)
    """Foreign lines between the frames; they do not end the traceback."""
    _num_seen: int = 0

    def take(self, number: int, rank: int | None, words: str) -> None:
        """Take the next line of the log; a line of another rank is only counted.

        `is_closed` becomes True at the first line that does not belong to the block.
        """
        self._num_seen += 1
        if rank == self.rank:
            self._add(number, words)
        self.is_closed = self.is_closed or self._num_seen >= MAX_BLOCK_LINES
        if self.is_closed and self._error is None and self._foreign:
            self._error = len(self._lines)
            self._lines.append(self._foreign[0])

    def can_have(self, number: int) -> bool:
        """True if a line belongs to the block, or may turn out to belong to it."""
        is_foreign = not self.is_closed and any(number == each for each, _ in self._foreign)
        return is_foreign or self.has(number)

    def has(self, number: int) -> bool:
        return any(number == each for each, _ in self._lines)

    def shows_program(self, number: int) -> bool:
        """True for frames and source lines, which do not describe the error."""
        if self._error is None:
            return number != self._lines[0][0] and self.has(number)
        return self._lines[0][0] < number < self._lines[self._error][0]

    def _add(self, number: int, words: str) -> None:
        if not self._lines:
            self._begin(number, words)
            return
        if self._is_logged:
            words = _LOGGED.sub("", words, count=1)
        if self._error is None:
            self._add_frame(number, words)
        elif self._goes_on(words):
            said = self._lines[self._error][1].strip()
            if self.kind in _PLAIN and _FRAME.match(words) and not _NAMED_ERROR.match(said):
                self._error = None  # another thread printed that line: the frames go on below it
            self._lines.append((number, words))
        else:
            self.is_closed = True

    def _begin(self, number: int, words: str) -> None:
        logged = _LOGGED.match(words)
        if logged is not None:
            self._level = logged["level"] or logged["word"]
            if logged["level"] is not None:
                self._is_logged, words = True, words[logged.end() :]
        self._lines.append((number, words))
        self.kind = self.kind or _kind_of(words)
        if self.kind is ErrorKind.NOTEBOOK:
            self._named = words.split()[0]
        elif self.kind in _PLAIN:
            self._is_embedded = bool(
                words.partition(TRACEBACK)[0].replace("Exception Group", "").strip(" |\t+")
            )
            self._margin = depth_of(words)
        elif self.kind is not ErrorKind.RICH and self.kind is not ErrorKind.HEADLESS:
            self._error = 0

    def _add_frame(self, number: int, words: str) -> None:
        if not words.strip():
            return
        if TRACEBACK in words:
            self.is_closed = True
            return
        if self._is_embedded and len(self._lines) == 1:
            self._margin = depth_of(words)
        elif _FRAME.match(words) or self._is_flat_source(words):
            pass  # an embedded traceback, or one whose indentation was lost
        elif self._can_be_error(words) and (found := _EXCEPTION.match(words.strip(" |\t"))) is not None:
            if not self._named or found["type"].rpartition(".")[2] == self._named.rpartition(".")[2]:
                self._error = len(self._lines)
                self._margin = depth_of(words) if self._is_embedded else self._margin
        elif self._can_be_error(words) and self.kind is not ErrorKind.NOTEBOOK:
            self._foreign.append((number, words))
            self.is_closed = len(self._foreign) > _MAX_FOREIGN_LINES
            return
        self._lines.append((number, words))

    def _is_flat_source(self, words: str) -> bool:
        """True for the source line below a frame that is indented as little as the exception."""
        above = self._lines[-1][1]
        is_flat = depth_of(above) <= self._margin and _FRAME.match(above) is not None
        return (
            is_flat and self.kind in (*_PLAIN, ErrorKind.HEADLESS) and not _NAMED_ERROR.match(words.strip())
        )

    def _can_be_error(self, words: str) -> bool:
        if self.kind is ErrorKind.RICH:
            return words[0] not in "│╰╭┃" and any(line.startswith("╰") for _, line in self._lines[-3:])
        return depth_of(words) <= self._margin

    def _goes_on(self, words: str) -> bool:
        """True if a line below the one with the exception's type belongs to the same block."""
        num_below = len(self._lines) - 1 - (self._error or 0)
        if any(head.decode() in words for head in HEADS):
            return False
        if self.kind is ErrorKind.FATAL:
            return bool(_OF_FATAL.match(words))
        if self.kind is ErrorKind.NATIVE:
            return bool(_OF_NATIVE.match(words))
        if self.kind is ErrorKind.ELASTIC:
            return num_below < 8 and bool(words.strip()) and (words[0] in " [")
        if not words.strip() or num_below >= _MAX_MESSAGE_LINES:
            return False
        return depth_of(words) > self._margin or self._lines[-1][1].rstrip().endswith(":")

    def build(self, chain: tuple[ErrorBlock, ...]) -> ErrorBlock:
        """The block as far as it has been read; `chain` holds the blocks that led to it."""
        kind, lines = self.kind or ErrorKind.HEADLESS, self._lines
        end = len(lines) - 1 if self._error is None else self._error
        fields: dict[str, str] = {}
        if kind is ErrorKind.ELASTIC:
            fields = {found["key"]: found["value"] for _, words in lines if (found := _FIELD.match(words))}
            end = next((i for i, (_, words) in enumerate(lines) if "exitcode" in words), end)
        below = [words for _, words in lines[end:]]
        name, message = _type_and_message(kind, below) if self._error is not None else (None, "")
        own = tuple(words for _, words in lines[: end + 1])
        process = next(filter(None, map(_PROCESS.search, reversed(self.above))), None)
        return ErrorBlock(
            kind=kind,
            file=self.file,
            first_line=lines[0][0],
            error_line=lines[end][0],
            last_line=lines[-1][0],
            lines=(*(chain[-1].lines if chain else ()), *own),
            frames=tuple(_frames(kind, lines, end)),
            type=name,
            message=message,
            chain=chain,
            rank=_number(fields.get("rank")) if kind is ErrorKind.ELASTIC else self.rank,
            process=next(filter(None, process.groups()), None) if process is not None else None,
            level=self._level,
            is_ignored=self._is_ignored(own, name or ""),
            exit_code=_number(fields.get("exitcode")),
            node=fields.get("host"),
        )

    def _is_ignored(self, lines: tuple[str, ...], name: str) -> bool:
        if any(_TIDYING in words for words in lines):
            return True
        # The exception of a signal counts, even if it was raised while logging.
        return not name.endswith(_BY_A_SIGNAL) and any(
            words.strip() == "due to:" or any(mark in words for mark in _IGNORED) for words in self.above
        )


def is_chained(above: tuple[str, ...]) -> bool:
    """True if the lines above a head say that the block before it led to this one."""
    return bool(above) and above[-1].strip(" |\t") in CHAINED


def is_frame(words: str) -> bool:
    """True if a line has the form of a frame, wherever it stands."""
    return bool(_FRAME.match(words) or _BOXED.match(words))


def is_exception(words: str) -> bool:
    """True if a line may end a traceback whose head is not in the log."""
    found = _EXCEPTION.match(words)
    return found is not None and ("." in found["type"] or len(found["type"]) > 3)


def _kind_of(head: str) -> ErrorKind:
    if _ELASTIC in head:
        return ErrorKind.ELASTIC
    if _FATAL in head:
        return ErrorKind.FATAL
    if _NATIVE in head:
        return ErrorKind.NATIVE
    before, found, after = head.partition(TRACEBACK)
    if not found:
        return ErrorKind.HEADLESS
    if "╭" in before or "┏" in before:
        return ErrorKind.RICH
    if "Exception Group " in before:
        return ErrorKind.GROUP
    if not after.strip() and re.match(r"[A-Za-z_][\w.]{0,80} {2,}$", before):
        return ErrorKind.NOTEBOOK
    return ErrorKind.PYTHON


def _number(text: str | None) -> int | None:
    found = re.match(r"-?\d{1,9}", text or "")
    return int(found[0]) if found is not None else None


def _type_and_message(kind: ErrorKind, below: list[str]) -> tuple[str | None, str]:
    """(type, message), parsed from the line with the type and the lines below it."""
    if kind is ErrorKind.FATAL:
        return "Fatal Python error", below[0].partition(_FATAL)[2]
    if kind is ErrorKind.ELASTIC:
        return "ChildFailedError", below[0].strip()
    if kind is ErrorKind.NATIVE:
        thrown = _THROWN.search(below[0])
        said = next((i for i, words in enumerate(below) if _SAID.match(words)), None)
        if said is None or (first := _SAID.match(below[said])) is None:
            return (thrown["type"] if thrown is not None else None), ""
        rest = [words for words in below[said + 1 :] if words.strip() and not _NATIVE_FRAME.match(words)]
        return thrown["type"] if thrown is not None else None, "\n".join((first["words"], *rest))
    found = _EXCEPTION.match(below[0].strip(" |\t"))
    if found is None:
        return None, below[0].strip()
    return found["type"], "\n".join((found["words"] or "", *below[1:]))


def _of_the_crashed_thread(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The lines of the thread that crashed; Python's fault handler prints the other threads before and after
    it. All lines if they name no thread."""
    heads = [(place, found) for place, (_, words) in enumerate(lines) if (found := _THREAD.match(words))]
    ends = [place for place, _ in heads[1:]] + [len(lines)] * bool(heads)
    parts = [lines[place:end] for (place, found), end in zip(heads, ends, strict=True) if found["crashed"]]
    return next(iter(parts), []) if heads else lines


def _frames(kind: ErrorKind, lines: list[tuple[int, str]], end: int) -> list[Frame]:
    pattern = {
        ErrorKind.RICH: _BOXED,
        ErrorKind.NOTEBOOK: _CELL,
        ErrorKind.NATIVE: _NATIVE_FRAME,
    }.get(kind, _FRAME)
    is_newest_first = kind in (ErrorKind.FATAL, ErrorKind.NATIVE)
    shown = lines[1:] if is_newest_first else lines[: end + 1]
    if kind is ErrorKind.FATAL:
        shown = _of_the_crashed_thread(shown)
    frames: list[Frame] = []
    for place, (number, words) in enumerate(shown):
        found = pattern.match(words)
        if found is None:
            continue
        values = found.groupdict()
        below = next((text for _, text in shown[place + 1 : place + 2] if not pattern.match(text)), "")
        source = below.strip() if kind in _PLAIN and not _MARKS.match(below) else None
        frames.append(Frame(found["file"], _number(values.get("line")), found["name"], source, number))
    return frames[::-1] if is_newest_first else frames
