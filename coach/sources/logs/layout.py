"""The layout of a log: a prefix before all lines, lines broken at one width, an empty line between any two.

The program that collects a log does this to all lines alike: a pod's console, a logger for all output, a
terminal, a mail. The layout is learned from the log. Prefixes of launchers are known in advance: see
line_text. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
    lines = decode(ANSI.sub(b"", data)).replace("\r\n", "\n").split("\n")[:-1]
    width = _width_of([line for line in lines if "\r" not in line])
    if width is not None:
        lines = list(_joined(lines, width))
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


def _whole(begun: list[bytes]) -> list[bytes]:
    return [b"".join(begun), *[b""] * (len(begun) - 1)]


def _joined(lines: Sequence[str], width: int) -> Iterator[str]:
    begun = ""
    for line in lines:
        begun += line
        if len(line) != width:
            yield begun
            begun = ""


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
