"""How a parser's time and memory grow with its input: `python -m tests.fuzz.growth`.

Each parser reads friendly texts (a real answer, many times over) and hostile ones: one line without an end,
empty lines, brackets that never close, near misses of its own words. It reads a text and the same text four
times as long, and the two processor times are compared; there is no limit in seconds. A ratio of 4 is linear,
16 is quadratic; above `MOST` the parser fails.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from coach.model.errors import UserError
from coach.sources.slurm.text import BadRow
from tests.fuzz.parsers import PARSERS, Parser

REFUSED = (UserError, BadRow, ValueError, RecursionError, IndexError)
MOST = 12.0
TIMES = 4
_SHORT_S = 0.02
"""A text that was read in so little time is no matter, however the time grows."""
_NUM_TRIES = 3
_ODD_END = " (\x00"
"""Behind a text that nearly fits: what fits to its end is never tried in another way."""
_SIGNS = (
    "\n",
    " ",
    "\t",
    "a",
    "1",
    "[",
    "(",
    "{",
    '"',
    "'",
    "\\",
    ",",
    "=",
    ":",
    "-",
    "/",
    ".",
    "|",
    "<",
    "a ",
    "1 ",
)
_FEW = ("\n", " ", "a", "1", ",")
_MORE = (
    "a=",
    "a.",
    '"a",',
    "a\n",
    "\r",
    "\x1b[",
    "[a]\n",
    "- ",
    "#",
    "$",
    "%",
    "_",
    "::",
    "${",
    "''",
    "é",
    "\x00",
    "a: ",
)


@dataclass(frozen=True)
class Growth:
    """The worst text of a parser."""

    kind: str
    seconds: float
    """Of the longer text."""
    ratio: float


def texts(parser: Parser, *, has_all: bool) -> Iterator[tuple[str, Callable[[int], str]]]:
    """(kind, text of that kind with the given number of characters)."""
    seed = parser.seed
    for number, more in enumerate(parser.more):
        yield f"its own, {number}", more
    yield "many", lambda size: _filled(seed.rstrip("\n") + "\n", size)
    line = " ".join(seed.split("\n")[:3])
    yield "one line", lambda size: _filled(line + " ", size)
    yield "no ends", lambda size: _filled(line.rstrip(")]}\"' ")[:-1] or "a", size)
    for sign in _SIGNS + _MORE if has_all else _FEW:
        yield f"signs {sign!r}", lambda size, sign=sign: _filled(sign, size)  # type: ignore[misc]
    for head in _heads(seed, 8 if has_all else 2):
        for sign in (" ", "a", "1", ",", '"', "a,") if has_all else ("a",):
            kind = f"{head[-12:]!r} then {sign!r}"
            yield kind, partial(_pumped, head, sign)


def _heads(seed: str, most: int) -> list[str]:
    """Beginnings of the seed, each ending behind a different character."""
    found: dict[str, str] = {}
    for place, sign in enumerate(seed[:2000]):
        if not sign.isalnum():
            found.setdefault(sign, seed[: place + 1])
    heads = [seed[:1], *found.values()]
    return heads[:: max(1, len(heads) // most)][:most]


def _pumped(head: str, sign: str, size: int) -> str:
    """A text of this size, end included: cut off by a parser's limit, it would not be read like the shorter
    ones."""
    return head + _filled(sign, max(0, size - len(head) - len(_ODD_END))) + _ODD_END


def _filled(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]


def grown(parser: Parser, sizes: Sequence[int], *, has_all: bool) -> Growth:
    """The text of this length with the worst growth; the ratio is 0 if all were fast.

    A text that has grown too fast is not made longer.
    """
    worst = Growth("", 0.0, 0.0)
    for kind, text in texts(parser, has_all=has_all):
        for size in sizes:
            found = _growth(parser.parse, kind, text, size)
            worst = max(worst, found, key=lambda each: (each.ratio > MOST, each.seconds))
            if found.ratio > MOST:
                break
    return worst


def _growth(parse: Callable[[str], object], kind: str, text: Callable[[int], str], size: int) -> Growth:
    """The growth from a text of a quarter of this size. A text that grew too fast is read again, because the
    machine has other work."""
    found = Growth(kind, _seconds(parse, text(size)), 0.0)
    if found.seconds <= _SHORT_S:
        return found
    ratio = found.seconds / max(_seconds(parse, text(size // TIMES)), 1e-6)
    for _ in range(_NUM_TRIES):
        if ratio <= MOST:
            break
        short, long = (_seconds(parse, text(each)) for each in (size // TIMES, size))
        ratio = min(ratio, long / max(short, 1e-6))
    return Growth(kind, found.seconds, ratio)


def _seconds(parse: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    with contextlib.suppress(*REFUSED):
        parse(text)
    return time.process_time() - start


def peak_bytes(parse: Callable[[str], object], text: str) -> int:
    """The most memory that reading a text takes."""
    tracemalloc.start()
    try:
        with contextlib.suppress(*REFUSED):
            parse(text)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kib", type=int, default=256, help="the longer text")
    parser.add_argument("--only", default="", metavar="WORD", help="parsers whose names hold this word")
    args = parser.parse_args()
    size, has_failed = args.kib << 10, False
    for each in PARSERS:
        if args.only in each.name:
            worst = grown(each, (size // 16, size // 4, size), has_all=True)
            peak = peak_bytes(each.parse, _filled(each.seed, size)) / size
            has_failed = has_failed or worst.ratio > MOST
            ratio = f"{worst.ratio:.1f}" if worst.ratio else "-"
            print(
                f"| {each.name} | `{worst.kind}` | {worst.seconds:.2f} | {ratio} | {peak:.1f} |", flush=True
            )
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
