"""Plain text for terminals and pipes: without control characters, aligned, with a dash for unknown values.

Text from other people (names, reasons, paths) passes through here before a command prints it. The screens
have their own renderers.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

from coach.analysis.spelling.printable import cut, display_width
from coach.analysis.spelling.printable import printable as printable

UNKNOWN = "–"

FORMATS = ("text", "json")

_GAP = "  "
_MAX_CELL = 100
_MAX_LAST_CELL = 1000
"""Characters. A job name of ten thousand characters must not make the whole table unreadable."""
_ACTING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\udc80-\udc9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters other than line ends and tabs, and marks that change the direction of text."""


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str | None]], aligns: str = "") -> None:
    """Print rows under headers. `aligns` has a letter per column, `l` or `r`; None becomes a dash. The last
    column is not padded."""
    columns = list(zip(*rows, strict=True)) or [()] * len(headers)
    print_columns(headers, columns, aligns)


def print_columns(headers: Sequence[str], columns: Sequence[Sequence[str | None]], aligns: str = "") -> None:
    """Like `print_table`, but by columns: a column of tens of thousands of cells has few distinct values, and
    only these are cut, measured and padded."""
    last = len(headers) - 1
    ready = [
        _padded(header, column, align, is_last=place == last)
        for place, (header, column, align) in enumerate(
            zip(headers, columns, aligns.ljust(len(headers), "l"), strict=True)
        )
    ]
    for cells in zip(*ready, strict=True):
        print(_GAP.join(cells).rstrip())


def _padded(header: str, column: Sequence[str | None], align: str, *, is_last: bool) -> list[str]:
    limit = _MAX_LAST_CELL if is_last else _MAX_CELL
    shown = {cell: UNKNOWN if cell is None else cut(printable(cell), limit) for cell in {*column}}
    widths = {text: display_width(text) for text in (header, *shown.values())}
    width = max(widths.values())
    padded = {}
    for text, own in widths.items():
        padding = " " * (width - own)
        padded[text] = padding + text if align == "r" else text if is_last else text + padding
    ready = {cell: padded[text] for cell, text in shown.items()}
    return [padded[header], *(ready[cell] for cell in column)]


def add_format(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    """Add the option that chooses between text, the default, and other forms."""
    words = " or ".join(("text (default)", *formats[1:]))
    parser.add_argument("--format", choices=formats, default="text", help=words)


def print_line(text: str, out: TextIO | None = None) -> None:
    """Print one line, on standard output by default. Other people's text cannot end it or act on the
    terminal."""
    print(printable(text), file=out)


def csv_cell(text: str) -> str:
    """Text of other people without control characters, and never a formula to a spreadsheet."""
    safe = printable(text)
    return f"'{safe}" if safe.startswith(("=", "+", "-", "@")) else safe


def say(line: str) -> None:
    """Print a note on standard error."""
    print_line(f"coach: {line}", sys.stderr)


def print_verbatim(text: str) -> None:
    """Write a script or a file as it is, without what acts on a terminal; a terminal gets only the characters
    that it can show."""
    if sys.stdout.isatty():
        sys.stdout.write(text)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(_ACTING.sub("\ufffd", text).encode("utf-8", "surrogateescape"))


def print_json(
    noun: str,
    items: Iterable[Mapping[str, Any]],
    num_bad_rows: int = 0,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Print the one object of `--format json`, each item on its own line. The output is ASCII, so bytes that
    are not UTF-8 survive as surrogate escapes.

    Each item is encoded and written before the next: the text of a queue of tens of thousands of jobs is
    never held in memory. Items are encoded without indentation, because with it Python is several times
    slower.
    """
    out, between = sys.stdout, "\n"
    out.write(f'{{"schema": 1, {json.dumps(noun)}: [')
    for item in items:
        out.write(between)
        out.write(json.dumps(item))
        between = ",\n"
    out.write("]" if between == "\n" else "\n]")
    rest = {**(more or {}), **({"num_bad_rows": num_bad_rows} if num_bad_rows else {})}
    for name, value in rest.items():
        out.write(f",\n{json.dumps(name)}: {json.dumps(value)}")
    out.write("}\n")


def fields_of(value: object, *names: str) -> dict[str, Any]:
    """The attributes of a value that JSON has under the same names."""
    return {name: getattr(value, name) for name in names}


def print_bad_rows(num_bad_rows: int) -> None:
    """Report on stderr that rows are missing from the output."""
    if num_bad_rows:
        rows = "row" if num_bad_rows == 1 else "rows"
        say(f"not shown: {num_bad_rows} {rows} of the answer that could not be read")


def format_count(value: int | None) -> str | None:
    return None if value is None else str(value)


def format_used(used: int | None, total: int | None) -> str | None:
    """`3/16`; `–/16` if the number in use is unknown."""
    if total is None:
        return None
    return f"{UNKNOWN if used is None else used}/{total}"


def format_time(time_s: float | None, pattern: str = "%Y-%m-%d %H:%M") -> str | None:
    """The time on the user's clock; None if the calendar has no such time."""
    if time_s is None:
        return None
    try:
        return datetime.fromtimestamp(time_s).strftime(pattern)  # noqa: DTZ006
    except (ValueError, OverflowError, OSError):
        return None


def format_mib(mib: float | None) -> str | None:
    """`512M`, `62.5G`, `2T`."""
    if mib is None:
        return None
    value, unit = float(mib), "M"
    for larger in ("G", "T"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f}".removesuffix(".0") + unit
