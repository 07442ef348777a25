"""Markdown from values: tables whose cells hold any text, code spans, the head of a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from coach.analysis.spelling.printable import printable

COMMAND = "python docs/make_reference.py"
UNSTORED = "python docs/make_pages.py"
"""Makes the pages that git does not keep."""
_SPECIAL = re.compile(r"([\\`*_\[\]<>|])")
_URL = re.compile(r"https?://[^\s<>\"'()\[\]|`]+[^\s<>\"'()\[\]|`.,:;]")
_CODE = re.compile(r"`([^`\n]+)`")


def page(title: str, *parts: str, made_by: str = COMMAND) -> str:
    """A whole page. Its first lines say that it is made by a command."""
    head = f"# {title}\n\n<!-- Made by `{made_by}`: do not edit. -->"
    return "\n\n".join([head, *(part.strip("\n") for part in parts if part)]) + "\n"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are Markdown already: of `text`, `code`, or both."""
    lines = [f"| {' | '.join(headers)} |", f"|{'|'.join('---' for _ in headers)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)])


def text(words: str | None) -> str:
    """Words of the program for a cell or a line: code spans and addresses stay, all else is only text."""
    if not words:
        return "–"
    line = " ".join(printable(words).split())
    parts: list[str] = []
    end = 0
    for span in re.finditer(f"{_CODE.pattern}|{_URL.pattern}", line):
        parts += [_plain(line[end : span.start()]), code(span[1]) if span[1] else f"<{span[0]}>"]
        end = span.end()
    return "".join([*parts, _plain(line[end:])])


def code(words: str) -> str:
    """A code span that neither its own backticks nor a table's bars end."""
    line = " ".join(printable(words).split(" ")).replace("|", "\\|")
    if not line:
        return "–"
    runs = {len(run) for run in re.findall("`+", line)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    padding = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{padding}{line}{padding}{fence}"


def block(lines: str, language: str = "") -> str:
    """A fenced block, which no line inside ends."""
    longest = max((len(run) for run in re.findall("`+", lines)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{lines.rstrip()}\n{fence}"


def cut(words: str, most: int) -> str:
    """The beginning of a long line."""
    line = words.strip()
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _plain(words: str) -> str:
    return _SPECIAL.sub(r"\\\1", words)
