"""The layout of a log: a prefix before all lines, lines broken at one width, an empty line between any two,
and the message of an error on several lines.

The program that collects a log does this to all lines alike: a pod's console, a logger for all output, a
terminal, a mail. The first three are learned from the log. Prefixes of launchers are known in advance: see
line_text. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from coach.sources.logs.line_text import ANSI, PREFIX, decode

_MIN_LINES = 4
_STRANGERS = 10
"""Up to one line in this many may lack the prefix, at either end of the sort order: banners, messages of
Slurm."""
_MIN_WIDTH, _MAX_WIDTH = 60, 250
_NEARLY = 8
_MAX_BROKEN = 50
_INDENTED = b"  "
"""A line with this indentation does not continue the line before it, even if that is as long as the width."""
_USUAL_WIDTHS = frozenset({80, 100, 120, 132, 160})
_MIN_TORN = 2
"""Number of words torn by a line break that prove an unusual width. One word proves a usual width."""
_TORN = re.compile(r".[A-Za-z]\n[a-z]|\S \n\S|.\S\n(?: \S|[),.;:\]'\"])")
"""A break inside a word. Programs do not end and begin lines this way, nor does wrapping at words."""

_NUMBER = re.compile(r"\d+")
_LEVELS = "INFO|WARN|DEBUG|ERROR|CRITICAL|FATAL|TRACE"
_SHAPE = re.compile(  # digits are already replaced by 0
    r"(?:[>|]+ ?"
    rf"|\[(?!rank|default|[IWEF][ 0]|0,0\]|0\]<)(?![^\]]*(?i:{_LEVELS}))[^\[\]]+\]:? ?"
    r"|0[-/]0[-/]0[ T]0:0:0(?:[.,]0)?(?:Z| ?[+-]0:?0)?(?: - |:? )"
    r"|[A-Z][a-z]{2} +0 0:0:0 \S+ [\w./-]+\[0\]: "
    r"|0\.0\.0\.0(?::0)?: ?"
    r"|(?!python|slurm)[A-Za-z](?=[\w.-]*0)[\w.-]*+(?::| [|>]) "
    r"|(?:[\w.]+ - )?(?:ERROR|CRITICAL) - )+"
)
"""Prefixes that collectors put before lines.

A level below ERROR is not removed: an exception logged with it was caught.
"""
_LEVEL = r"(?:(?:[\w.]+ - )?(?:ERROR|CRITICAL) - |\[(?:ERROR|CRITICAL)\]:? )?"

_OPEN = re.compile(
    rb"(?:(?:[A-Za-z_]\w{0,40}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception)(?::[ \t]*|: [^\r\n]{0,300}[^\s.!?:;])"
    rb"|\bError in [^\r\n]{1,200} :[ \t]*)\n"
)
"""The end of a line whose message may go on in the next line: an exception of Python or Julia, or an error of
R. Nothing, or no end of a sentence, stands behind its colon."""
_NAMES_ERROR = re.compile(rb"Error|Exception")
"""A word of each such line, which is found faster."""
_MAX_MESSAGE_LINES = 6
_MIN_WRAPPED = 40
_MAX_LINE_PREFIX = 80
_MAX_HELD_BYTES = 4 << 10
_WRAPPED = re.compile(
    r"^(?![^:]{1,60}: |(?:epoch|step|iter|it|batch|loss|train|val|eval|test|saved?|done|on_|using)\b"
    r"|\w{1,30}ing\b)"
    r"[a-z(]\S{0,80}(?: \S|(?<=[.!)'\"\]])$)"
)
"""The second line of a message that a terminal wrapped at words; no word of a program that goes on."""
_WRAPPED_ON = re.compile(r"^(?![^:]{1,60}: )[a-z\d('\"]")
_SAYS = re.compile(r"(?!.*(?:Traceback \(most recent|File \"))(?=.*[A-Za-z])\s*[^\s=~]")


@dataclass(frozen=True, slots=True)
class Layout:
    """The changes that were made to all lines of a log."""

    prefix: str = ""
    """A pattern of the text before nearly all lines; "" for none."""
    width: int | None = None
    """Number of characters at which longer lines were broken; None: lines are whole."""
    is_spaced: bool = False
    """True if there is an empty line between any two lines."""


def layout_of(data: bytes) -> Layout:
    """Learn the layout from the first bytes of a log."""
    data = ANSI.sub(b"", data).replace(b"\r\n", b"\n")
    lines = decode(data).split("\n")[:-1]
    width = _width_of([line for line in lines if "\r" not in line])
    if width is not None:
        lines = decode(join_broken(data, width)[0]).split("\n")
    said = [line for line in lines if line.strip()]
    if len(said) < _MIN_LINES:
        return Layout(width=width)
    is_spaced = width is None and not any(a.strip() and b.strip() for a, b in pairwise(lines))
    return Layout(_prefix_of(said), width, is_spaced)


def join_broken(data: bytes, width: int) -> tuple[bytes, bytes]:
    """Rejoin broken lines. Returns the complete lines, and the beginning of the last one.

    Empty lines follow a joined line, so that later lines keep their numbers.
    """
    *lines, unended = data.split(b"\n")
    joined: list[bytes] = []
    begun: list[bytes] = []
    for line in lines:
        if begun and line.startswith(_INDENTED):
            joined += _whole(begun)
            begun = []
        begun.append(line)
        if len(decode(line)) != width or len(begun) == _MAX_BROKEN:
            joined += _whole(begun)
            begun = []
    return b"".join(line + b"\n" for line in joined), b"\n".join([*begun, unended])


def join_messages(data: bytes, is_end: bool) -> tuple[bytes, bytes]:
    """Join the lines of an error's message to the line that names the error, if they stand below it.

    Each line has the same prefix. Returns the lines, and those at the end whose message may go on in the next
    bytes; none if `is_end`.

    Empty lines follow a joined line, so that later lines keep their numbers.
    """
    if _NAMES_ERROR.search(data) is None:
        return data, b""
    parts: list[bytes] = []
    place = 0
    data, num_added = (data + b"\n", 1) if is_end and not data.endswith(b"\n") else (data, 0)
    for found in _OPEN.finditer(data):
        start = data.rfind(b"\n", place, found.start()) + 1 or place
        if found.start() < place or found.start() - start > _MAX_LINE_PREFIX:
            continue
        prefix = data[start : found.start()]
        said, end = _message_below(data, found, prefix, start)
        if end is None and not is_end and len(data) - start < _MAX_HELD_BYTES:
            held = max(
                place, data.rfind(b"\n", 0, max(0, start - 1)) + 1
            )  # the line above is asked for again
            return b"".join((*parts, data[place:held])), data[held:]
        if said:
            end = end or len(data)
            whole = b" ".join((found[0].rstrip(), *said))
            parts += [data[place:start], prefix, whole, b"\n" * data.count(b"\n", start, end)]
            place = end
    return b"".join((*parts, data[place : len(data) - num_added])), b""


def _message_below(
    data: bytes, head: re.Match[bytes], prefix: bytes, start: int
) -> tuple[list[bytes], int | None]:
    """The lines below an error that belong to its message, and the offset of the first that does not; None if
    the text ends before it."""
    is_bare = head[0].rstrip().endswith(b":")
    if not is_bare and not _may_be_wrapped(data, start, prefix, len(head[0])):
        return [], head.end()
    said: list[bytes] = []
    place, is_indented = head.end(), False
    while len(said) < _MAX_MESSAGE_LINES:
        end = data.find(b"\n", place)
        if end < 0:
            return said, None
        words = _words_of(data[place:end], prefix)
        is_indented = is_indented or (is_bare and not said and words[:1].isspace())
        wrapped = _WRAPPED_ON if said else _WRAPPED
        goes_on = words[:1].isspace() if is_indented else (is_bare and not said) or wrapped.match(words)
        if not words or not goes_on:
            break
        said.append(words.strip().encode())
        place = end + 1
    return said, place


def _words_of(line: bytes, prefix: bytes) -> str:
    """The words of a line that may belong to a message above it; empty for another line."""
    words = decode(line[len(prefix) :]) if line.startswith(prefix) and b"\r" not in line else ""
    return words if _SAYS.match(words) and not PREFIX.match(words) else ""


def _may_be_wrapped(data: bytes, start: int, prefix: bytes, length: int) -> bool:
    """True if a line of this length may be wrapped, and the line above it is one of a traceback. Only rich,
    which draws boxes, wraps at less than _MIN_WRAPPED."""
    above = data[data.rfind(b"\n", 0, max(0, start - 1)) + 1 : start]
    mark = decode(above[len(prefix) :])[:1] if above.startswith(prefix) else ""
    return mark in ("╰", "│") or (mark in (" ", "|", "\t") and length >= _MIN_WRAPPED)


def _whole(begun: list[bytes]) -> list[bytes]:
    return [b"".join(begun), *[b""] * (len(begun) - 1)]


def _width_of(lines: Sequence[str]) -> int | None:
    """The width at which lines were broken; None if they were not.

    No line is longer than the width, and lines of that width end within words. If many lines are slightly
    shorter, a program wrapped its text at words instead.
    """
    width = max(map(len, lines), default=0)
    if not _MIN_WIDTH <= width <= _MAX_WIDTH:
        return None
    pairs = list(pairwise(lines))
    begins = {_kind(line) for before, line in pairs if len(before) != width}
    broken = {_kind(line): (before, line) for before, line in pairs if len(before) == width}
    torn = sum(kind not in begins and _is_torn(before, line) for kind, (before, line) in broken.items())
    wrapped = {
        _kind(line) for before, line in pairs if width - _NEARLY <= len(before) < width and line[:1].islower()
    }
    enough = 1 if width in _USUAL_WIDTHS else _MIN_TORN
    return width if torn >= enough and torn > len(wrapped) and 2 * torn >= len(broken) else None


def _is_torn(before: str, line: str) -> bool:
    """True if a word begins in one line and ends in the next, and the lines begin differently."""
    return _kind(line) != _kind(before) and _TORN.match(f"{before[-2:]}\n{line[:2]}") is not None


def _kind(line: str) -> str:
    return _NUMBER.sub("0", line[:12])


def _prefix_of(said: Sequence[str]) -> str:
    kinds = sorted(_NUMBER.sub("0", line) for line in said)
    common = _common(kinds[0], kinds[-1])
    if common[:1].isspace():
        return re.escape(common[: len(common) - len(common.lstrip())])
    few = len(kinds) // _STRANGERS
    found = _SHAPE.match(_common(kinds[few], kinds[-1 - few]))
    if found is None or PREFIX.match(kinds[len(kinds) // 2]):
        return ""
    return re.escape(found[0]).replace("0", r"\d+") + _LEVEL


def _common(first: str, last: str) -> str:
    """The common beginning of two lines.

    If the lines are sorted, all lines between the two share it.
    """
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
