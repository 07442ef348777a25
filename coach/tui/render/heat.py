"""A heat map of one quantity over many GPUs: a node's GPUs side by side as numbers, the nodes below and
beside each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from coach.render.text import UNKNOWN, Line, Span, Tone, clip, fit, line, muted, pad, printable

_BLOCKS = "▁▂▃▄▅▆▇█"
_FAR = "▲"
_GAP = 2
_MAX_NAME = 14
_CELLS = (5, 4, 1)
"""Widths of one GPU's cell: block and number, number, only the first digit."""


class Measured(Protocol):
    """The scale of the shown quantity."""

    @property
    def unit(self) -> str: ...
    @property
    def outlier(self) -> float:
        """The distance from the median from which a value gets a sign."""

    @property
    def top(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class HeatRow:
    """A node, and the values of its GPUs by index; None if unknown."""

    node: str
    values: tuple[float | None, ...]


def heat_lines(rows: Sequence[HeatRow], quantity: Measured, width: int, height: int) -> list[Line]:
    """The map in the widest form in which all nodes fit into `height`, else in the narrowest form, which
    scrolls.

    The last line explains the map.
    """
    num_slots = max((len(row.values) for row in rows), default=0)
    name_width = min(_MAX_NAME, max((len(row.node) for row in rows), default=0))
    cell, num_blocks = _shape(len(rows), name_width, num_slots, width, height - 1)
    block_width = name_width + 2 + num_slots * cell
    per_block = math.ceil(len(rows) / num_blocks)
    known = [value for row in rows for value in row.values if value is not None]
    middle = median(known) if known else 0.0
    drawn = [_row(row, quantity, middle, name_width, cell) for row in rows]
    lines: list[Line] = []
    for index in range(per_block):
        beside = drawn[index::per_block]
        blocks = [(*pad(block, block_width), Span(" " * _GAP)) for block in beside[:-1]]
        lines.append(clip((*(span for block in blocks for span in block), *beside[-1]), width))
    return [*lines, _legend(quantity, cell, middle, width)]


def _shape(num_rows: int, name_width: int, num_slots: int, width: int, height: int) -> tuple[int, int]:
    """The cell's width, and the number of blocks of nodes side by side."""
    for cell in _CELLS:
        num_blocks = max(1, (width + _GAP) // (name_width + 2 + num_slots * cell + _GAP))
        if math.ceil(num_rows / num_blocks) <= height:
            return cell, max(1, math.ceil(num_rows / max(1, height)))
    return cell, num_blocks


def _row(row: HeatRow, quantity: Measured, middle: float, name_width: int, cell: int) -> Line:
    name = muted(f" {_tail(printable(row.node), name_width)} ")
    return line(name, *(_cell(value, quantity, middle, cell) for value in row.values))


def _tail(name: str, width: int) -> str:
    """The end of a long name, because names of nodes differ at the end."""
    return fit(name, width) if len(name) <= width else "…" + name[1 - width :]


def _cell(value: float | None, quantity: Measured, middle: float, width: int) -> Span:
    """The cell of one GPU. A value far from the median has a sign and the tone of the sign."""
    if value is None:
        return Span(f"{UNKNOWN:>{width}}", "muted")
    is_far = abs(value - middle) >= quantity.outlier
    tone: Tone = "warning" if is_far else "muted" if value < 10 else "accent" if value >= 50 else ""
    if width == 1:
        return Span(_FAR if is_far else str(min(9, max(0, int(value * 10 // (quantity.top or 100.0))))), tone)
    text = f"{value:.0f}"
    if width == 4:
        return Span(f"{_FAR + text if is_far else text:>4}", tone)
    step = min(max(value / (quantity.top or 100.0), 0.0), 1.0) * (len(_BLOCKS) - 1)
    return Span(f" {_FAR if is_far else _BLOCKS[round(step)]}{text:>3}", tone)


def _legend(quantity: Measured, cell: int, middle: float, width: int) -> Line:
    top = quantity.top or 100.0
    tens = f"tens of {quantity.unit}" if top == 100 else f"tenths of {top:.0f} {quantity.unit}"
    digit = f"digit: {tens}; " if cell == 1 else ""
    far = f"{quantity.outlier:.0f} or more off the median {middle:.0f}"
    return clip(
        line(muted(f" {digit}"), Span(_FAR, "warning"), muted(f" {far}; {UNKNOWN} not measured")),
        width,
    )
