"""Damaged real text: the strategies that every module of this folder draws from.

A text that was made up is refused by the first check of a parser. What comes further is a real answer with
a few bytes flipped, a part cut, doubled or moved, a number that is too large, or a value of another type; so
each example is a seed with a handful of damages, drawn cheaply and shrunk to the few that matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDINGS = Path(__file__).parents[1] / "recordings"
WINDOW_BYTES = 6 << 10
"""Of a long capture a part is taken: what a parser does with it is the same, and takes less long."""

_NUMBER = re.compile(rb"\d+")
_WORD = re.compile(rb"[A-Za-z_]\w*")
_ODD = (
    b"",
    b"0",
    b"-1",
    b"9" * 25,
    b"9" * 400,
    b"1" * 5000,
    b"1e999",
    b"1e308",
    b"0x10",
    b"NaN",
    b"-Infinity",
    "²".encode(),
    "٣".encode(),
    b"null",
    b"N/A",
    b"(null)",
    b"UNLIMITED",
    b"[0-99999999]",
    b"[" * 3000,
    b"{" * 3000,
    b"(" * 300,
    b"a" * 3000,
    b'"',
    b"'",
    b"\\",
    b"\\ud800",
    b"\0",
    b"\x1b[31m",
    b"\x0c",
    b"\x1c",
    b"\x85",
    "\u2028\u202e".encode(),
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\t",
    b" ",
    b",",
    b"=",
    b":",
    b"-",
    b"$HOME",
    b"${X}",
    b"%",
    b"%j",
    b"#",
    b"../..",
    b"/",
    b"]]",
    b"}}",
)
_KINDS = ("flip", "cut", "drop", "double", "move", "put", "number", "word", "repeat")

Damage = tuple[str, float, float, int]


def damages(most: int = 5) -> st.SearchStrategy[list[Damage]]:
    """Where to damage, by how much, and which odd words to use."""
    share = st.floats(0, 1, width=32)
    return st.lists(st.tuples(st.sampled_from(_KINDS), share, share, st.integers(0, 1 << 12)), max_size=most)


def damaged(seed: bytes, asked: Sequence[Damage]) -> bytes:
    """A seed with these damages done to it, one after the other."""
    for kind, at, length, which in asked:
        start = int(at * len(seed))
        end = min(len(seed), start + int(length * length * length * len(seed)))
        odd = _ODD[which % len(_ODD)]
        if kind == "flip" and start < len(seed):
            seed = seed[:start] + bytes([seed[start] ^ (1 << which % 8)]) + seed[start + 1 :]
        elif kind == "cut":
            seed = seed[:start]
        elif kind == "drop":
            seed = seed[:start] + seed[end:]
        elif kind == "double":
            seed = seed[:end] + seed[start:end] + seed[end:]
        elif kind == "move":
            seed = seed[end:] + seed[start:end] + seed[:start]
        elif kind == "put":
            seed = seed[:start] + odd + seed[start:]
        elif kind == "repeat":
            seed = seed[:start] + odd * (which % 50) + seed[start:]
        elif kind in ("number", "word"):
            found = list((_NUMBER if kind == "number" else _WORD).finditer(seed))
            if found:
                first, last = found[min(int(at * len(found)), len(found) - 1)].span()
                seed = seed[:first] + odd + seed[last:]
        seed = seed[: WINDOW_BYTES * 4]
    return seed


@st.composite
def damaged_bytes(draw: st.DrawFn, *seeds: bytes, whole: bool = False) -> bytes:
    """Damaged parts of the seeds, each from the beginning of a line; sometimes only random bytes."""
    if draw(st.integers(0, 15)) == 0:
        return draw(st.binary(max_size=200))
    seed = seeds[draw(st.integers(0, len(seeds) - 1))]
    if not whole and len(seed) > WINDOW_BYTES:
        start = draw(st.integers(0, len(seed) - WINDOW_BYTES))
        start = seed.rfind(b"\n", 0, start) + 1
        seed = seed[start : start + WINDOW_BYTES]
    return damaged(seed, draw(damages()))


def damaged_text(*seeds: str | bytes, whole: bool = False) -> st.SearchStrategy[str]:
    """The same as text, decoded as coach decodes the output of commands."""
    raw = [seed.encode("utf-8", "surrogateescape") if isinstance(seed, str) else seed for seed in seeds]
    return damaged_bytes(*raw, whole=whole).map(lambda data: data.decode("utf-8", "surrogateescape"))


def words(*seeds: str) -> st.SearchStrategy[str]:
    """Single words: seeds, damaged; and any short text."""
    return st.one_of(damaged_text(*seeds), st.text(max_size=12))


_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    10**400,
    -(10**400),
    0.5,
    -0.0,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    "",
    "NaN",
    "Infinity",
    "x",
    "1",
    "²",
    "\ud800",
    "\x00",
    "\x1b[2J",
    "a\nb",
    "x" * 3000,
    [],
    [[]],
    [None],
    [1, "a", {}],
    {},
    {"a": {}},
    {"": None},
    {"text": 1},
)


def odd_values() -> st.SearchStrategy[Any]:
    """Values of all types that JSON has, each of them awkward."""
    return st.sampled_from(_VALUES)


@st.composite
def damaged_value(draw: st.DrawFn, *seeds: Any) -> Any:
    """A seed (nested tables and lists) in which some values are others, some are missing, some are moved."""
    value = json.loads(json.dumps(seeds[draw(st.integers(0, len(seeds) - 1))]))
    for share, kind, odd in draw(
        st.lists(
            st.tuples(st.floats(0, 1, width=32), st.integers(0, 9), st.integers(0, len(_VALUES) - 1)),
            max_size=4,
        )
    ):
        places = list(_places(value))
        if not places:
            return _VALUES[odd]
        holder, key = places[min(int(share * len(places)), len(places) - 1)]
        if kind == 0:
            del holder[key]
        elif kind == 1:
            holder[key] = {"a": holder[key]}
        elif kind == 2:
            holder[key] = [holder[key]] * 3
        elif kind == 3 and isinstance(holder, dict):
            holder[str(_VALUES[odd])] = holder[key]
        else:
            holder[key] = json.loads(json.dumps(_VALUES[odd]))
    return value


def _places(value: Any) -> Any:
    """(holder, key) of all values within a value, the ones above first."""
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
    for key in list(keys):
        yield from _places(value[key])


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def read(path: str, root: Path = FIXTURES) -> bytes:
    return (root / path).read_bytes()


def all_of(pattern: str, root: Path = FIXTURES) -> tuple[bytes, ...]:
    """The files of a pattern. A pattern that finds nothing is a mistake."""
    found = tuple(path.read_bytes() for path in sorted(root.glob(pattern)) if path.is_file())
    assert found, pattern
    return found
