"""Name the numbers of a table's rows by its header: `10 2.301 0.11` below `step loss acc`.

A row is read only while a header above it names the columns and the row has a cell for each of them. Without
a header, nothing is read: the meaning of a bare number is never guessed. Headers may be repeated, ruled with
lines, separated by commas, tabs, bars or spaces. Pure: lines in, lines out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAX_CHARS = 2048
_MAX_COLUMNS = 40
MAX_STRANGERS = 200
"""A table has ended once so many lines in a row were no rows of it."""
_NAME = re.compile(r"[A-Za-z_#][\w/.%#()@\[\]+*-]*(?: [A-Za-z_(][\w/.%()@+*-]*){0,3}")
_COUNTER = re.compile(
    r"(?:global[_ ]?)?(?:step|epoch|iter|iteration|batch|update|round|ep|it)s?|#|num_updates", re.IGNORECASE
)
_LOSS = re.compile(r"(?:^|[_/. -])loss(?:$|[_/. (-])", re.IGNORECASE)
HEADER = (
    r"^(?=[^\n]{0,2000}(?:loss|Loss|LOSS))(?=[^\d\W]|[\s|\u2502\u2503#,\"])"
    r"(?!.*(?:[:={}!?]|\. |(?<![\w/.@(-])[-+]?\d))"
)
"""A line without values that names a loss. `read` decides if it is the header of a table."""
_IS_HEADER = re.compile(HEADER)
_BARS = str.maketrans("\u2502\u2503\u2506\u250a", "||||")
_BEHIND_ROW = re.compile(r":?[ \t]{1,20}\d{1,3}%[\s|].*|\|\Z")
"""The progress bar that some programs print behind the last cell, or the last bar of a frame."""
_ULTRALYTICS = "GPU_mem"
"""A column of a table whose losses are parts: the loss of the model is their sum (`v8DetectionLoss` in
ultralytics/utils/loss.py)."""
_CELL = re.compile(
    r"[-+]?(?:\d[\w.:/%+-]*|\.\d+|nan|inf(?:inity)?)|[-+\u2013]|None|N/A|No log|", re.IGNORECASE
)
_VALUE = re.compile(r"[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+|nan|inf(?:inity)?)", re.IGNORECASE)


class Columns:
    """Reads the lines of one log in order."""

    def __init__(self) -> None:
        self._headers: tuple[tuple[str | None, tuple[str, ...]], ...] = ()
        self._num_strangers = 0

    @property
    def is_open(self) -> bool:
        """True while rows may follow."""
        return bool(self._headers)

    def read(self, line: str) -> str | None:
        """The row with the names of its columns, as in `step=10, loss=2.301`; None for any other line."""
        line = line[:_MAX_CHARS]
        headers = _headers_of(line)
        if headers:
            self._headers, self._num_strangers = headers, 0
            return None
        if not self._headers:
            return None
        for separator, names in self._headers:
            named = _named(line, separator, names)
            if named is not None:
                self._num_strangers = 0
                return named
        self._num_strangers += 1
        if self._num_strangers >= MAX_STRANGERS:
            self._headers = ()
        return None


def is_header(line: str) -> bool:
    """True for the header of a table with a column for a loss."""
    return bool(_headers_of(line))


def _headers_of(line: str) -> tuple[tuple[str | None, tuple[str, ...]], ...]:
    """(separator, names) in each way in which the line can be a header; a separator of None is space."""
    if not _IS_HEADER.match(line):
        return ()
    text = line.translate(_BARS).strip()
    for separator in ("|", "\t", ",", ";"):
        if separator in text:
            names = _cells(text, separator)
            return ((separator, names),) if _are_names(names) else ()
    ways = dict.fromkeys((tuple(re.split(r" {2,}", text)), tuple(text.split())))
    return tuple((None, names) for names in ways if _are_names(names) and any(map(_COUNTER.fullmatch, names)))


def _cells(text: str, separator: str) -> tuple[str, ...]:
    inner = text.strip().strip("|") if separator == "|" else text
    return tuple(cell.strip().strip("\"'").strip() for cell in inner.split(separator))


def _are_names(names: Sequence[str]) -> bool:
    """True if all cells are names, and one of them is that of a loss."""
    named = [name for name in names if name]
    return (
        2 <= len(names) <= _MAX_COLUMNS
        and len(named) >= max(2, len(names) - 1)
        and len(set(named)) == len(named)
        and all(_NAME.fullmatch(name) for name in named)
        and any(map(_LOSS.search, named))
    )


def _named(line: str, separator: str | None, names: Sequence[str]) -> str | None:
    text = _BEHIND_ROW.sub("", line.translate(_BARS).rstrip())
    cells = tuple(text.split()) if separator is None else _cells(text, separator)
    if separator is None and len(cells) == len(names):
        cells = (*cells[:-1], cells[-1].rstrip(":"))
    if len(cells) != len(names) or not all(map(_CELL.fullmatch, cells)):
        return None
    values = [(name, cell) for name, cell in zip(names, cells, strict=True) if name and _VALUE.match(cell)]
    losses = [float(cell) for name, cell in values if _LOSS.search(name) and _VALUE.fullmatch(cell)]
    if not losses:
        return None
    row = ", ".join(f"{name}={cell}" for name, cell in values)
    if _ULTRALYTICS in names:
        row += f", loss={sum(losses):.6g}{line.partition(':')[2]}"
    return row
