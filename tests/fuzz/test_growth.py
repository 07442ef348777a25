"""A text of four times the length takes four times as long to read, with any content: see `growth.py`."""

from __future__ import annotations

import pytest

from tests.fuzz.growth import MOST, grown
from tests.fuzz.parsers import PARSERS, Parser


def by_name(parser: Parser) -> str:
    return parser.name


def cubic(text: str) -> None:
    for _ in range(text.count("\n\n") ** 3 // 400):
        pass


def test_a_parser_that_grows_too_fast_with_one_kind_of_text_is_found_out() -> None:
    worst = grown(Parser("cubic", cubic, "a b\n"), (2 << 10,), has_all=False)
    assert worst.kind == r"signs '\n'"
    assert worst.ratio > MOST


def test_no_parser_grows_faster_than_its_text() -> None:
    slow = {
        each.name: worst for each in PARSERS if (worst := grown(each, (8 << 10,), has_all=False)).ratio > MOST
    }
    assert slow == {}


@pytest.mark.long
@pytest.mark.parametrize("parser", PARSERS, ids=by_name)
def test_no_parser_grows_faster_than_any_long_text(parser: Parser) -> None:
    assert grown(parser, (4 << 10, 16 << 10, 64 << 10), has_all=True).ratio <= MOST
