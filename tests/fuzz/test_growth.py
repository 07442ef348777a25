"""A text that is four times as long takes four times as long, whatever stands in it: see `growth.py`."""

from __future__ import annotations

import pytest

from tests.fuzz import growth
from tests.fuzz.growth import MOST, grown, texts
from tests.fuzz.parsers import PARSERS, Parser


def by_name(parser: Parser) -> str:
    return parser.name


def quadratic(text: str) -> None:
    for place in range(len(text)):
        for _ in text[place:]:
            pass


def test_a_quadratic_parser_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = Parser("quadratic", quadratic, "a b\n")
    one = [*texts(parser, has_all=False)][:1]  # it is as slow on each
    monkeypatch.setattr(growth, "texts", lambda parser, *, has_all: one)
    assert grown(parser, (4 << 10,), has_all=False).ratio > MOST


def test_no_parser_grows_faster_than_its_text() -> None:
    slow = {
        each.name: worst for each in PARSERS if (worst := grown(each, (8 << 10,), has_all=False)).ratio > MOST
    }
    assert slow == {}


@pytest.mark.long
@pytest.mark.parametrize("parser", PARSERS, ids=by_name)
def test_no_parser_grows_faster_than_any_long_text(parser: Parser) -> None:
    assert grown(parser, (4 << 10, 16 << 10, 64 << 10), has_all=True).ratio <= MOST
