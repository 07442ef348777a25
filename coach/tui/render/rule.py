"""The page of a rule as lines: its paragraphs wrapped, its headings marked."""

from __future__ import annotations

from itertools import groupby

from coach.render.text import BLANK, Line, line, printable, strong, wrap


def rule_lines(text: str, width: int) -> list[Line]:
    """`text` is as `coach explain` prints it: headings stand at the margin, their paragraphs are indented."""
    rows: list[Line] = []
    for indent, group in groupby(text.splitlines(), key=_indent):
        lines = [printable(each.strip()) for each in group]
        if indent is None:
            rows.append(BLANK)
        elif not indent:
            rows += [line(strong(f" {part}")) for whole in lines for part in wrap(whole, width - 2)]
        else:
            # An indent of two spaces is a paragraph. A deeper indent is a list, whose lines stay unchanged.
            wholes = [" ".join(lines)] if indent == 2 else lines
            rows += [line(f"   {part}") for whole in wholes for part in wrap(whole, width - 4)]
    return rows


def _indent(text: str) -> int | None:
    """Spaces at the start; None for an empty line."""
    return len(text) - len(text.lstrip()) if text.strip() else None
