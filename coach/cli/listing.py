"""Shared code of `coach jobs`, `nodes` and `history`: options for a filter, an order and columns, and the
printed table.

All three use words of one vocabulary, which also makes the help.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from coach.analysis.query.language import Field, Order, Query, Vocabulary, in_order
from coach.cli.text import format_mib, format_time, print_columns
from coach.render.text import clock

T = TypeVar("T")

_RIGHT = frozenset({"count", "percent", "duration", "size"})
_SHOWN: Mapping[str, Callable[[Any], str | None]] = {
    "text": lambda value: ",".join(value) if isinstance(value, tuple) else str(value),
    "count": str,
    "percent": lambda value: f"{value:.0f}%",
    "duration": clock,
    "time": format_time,
    "size": format_mib,
}


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """The requested filter, order and columns. `columns` is empty if none were named."""

    query: Query[T]
    orders: tuple[Order[T], ...]
    columns: tuple[Field[T], ...]

    def as_json(self, row: T) -> dict[str, Any]:
        """Only the named columns."""
        return {field.attribute: field.value(row) for field in self.columns}


def add_listing(parser: argparse.ArgumentParser, vocabulary: Vocabulary[Any]) -> None:
    parser.add_argument(
        "query",
        nargs="*",
        metavar="FILTER",
        help="conditions that must all hold: KEY:VALUE[,VALUE], or any text",
    )
    parser.add_argument(
        "--sort",
        default="",
        metavar="FIELDS",
        help="sort by these fields; - puts the largest first: -gpu,user",
    )
    parser.add_argument(
        "--columns", default="", metavar="FIELDS", help="show only these columns, in this order: id,user,gpu"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(
        (
            "fields, and how their values are written in a filter:",
            *vocabulary.help_lines(),
            "",
            (
                "-WORD or !WORD is true where WORD is not. Quotes keep blanks. A word without a key is found "
                "anywhere."
            ),
        )
    )


_SLURM_OPTIONS = {"-u": "user", "-p": "part", "-t": "state", "-w": "node"}
"""Options of squeue and sinfo → the field of a filter."""


def unmistakable(arguments: Iterable[str]) -> list[str]:
    """Rewrite `--sort -gpu` as `--sort=-gpu`, and `-state:running` and `-dead` with `!`, because argparse
    takes a word with a dash for an option. Slurm's `-u root` becomes `user:root`."""
    words: list[str] = []
    for argument in arguments:
        if words and words[-1] == "--sort":
            words[-1] = f"--sort={argument}"
        elif words and (field := _SLURM_OPTIONS.get(words[-1])) is not None:
            words[-1] = f"{field}:{argument}"
        elif argument in _SLURM_OPTIONS:
            words.append(argument)
        else:
            words.append(re.sub(r"^-(?!M|h$)(?=[A-Za-z_])", "!", argument))
    return words


def read_listing(args: argparse.Namespace, vocabulary: Vocabulary[T]) -> Listing[T]:
    """Parse the options. Raises UserError for an unknown word."""
    return Listing(
        vocabulary.query(" ".join(args.query)), vocabulary.orders(args.sort), vocabulary.columns(args.columns)
    )


def print_listing(
    rows: Iterable[T],
    listing: Listing[T],
    columns: Sequence[Field[T]],
    special: Mapping[str, Callable[[T], str | None]],
) -> None:
    """Print a table of the requested columns, else of `columns`. `special` maps a field's name → a function
    for cells that show more than the field."""
    columns, ordered = listing.columns or columns, in_order(rows, listing.orders)
    print_columns(
        [field.title for field in columns],
        [_cells(field, ordered, special.get(field.name)) for field in columns],
        "".join("r" if field.kind.shown_as in _RIGHT else "l" for field in columns),
    )


def _cells(
    field: Field[T], rows: Sequence[T], special: Callable[[T], str | None] | None
) -> Sequence[str | None]:
    """The cells of one column. Each distinct value is formatted once, however many rows have it."""
    if special is not None:
        return list(map(special, rows))
    values = list(map(field.value, rows))
    shown = {value: _shown(field, value) for value in {*values}}
    return [shown[value] for value in values]


def _shown(field: Field[T], value: Any) -> str | None:
    return None if value is None or value == () else _SHOWN[field.kind.shown_as](value)
