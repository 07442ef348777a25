"""Other people's text is harmless, and as wide as coach computes."""

from __future__ import annotations

import unicodedata

import pytest
from rich.cells import cell_len

from coach.analysis.spelling.printable import cut, display_width, printable


def test_no_character_reaches_the_terminal_that_is_not_plain_text() -> None:
    for code in range(0x110000):
        shown = printable(f"a{chr(code)}")
        assert shown.isprintable(), f"U+{code:04X}"


def test_both_front_ends_believe_the_same_width_of_every_character() -> None:
    wrong = []
    for code in range(0x20, 0x110000):
        shown = printable(f"a{chr(code)}b")
        if display_width(shown) != cell_len(shown):
            wrong.append(f"U+{code:04X}")
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("👩\u200d👩\u200d👧", "👩\ufffd👩\ufffd👧"),
        ("👍🏽", "👍\ufffd"),
        ("🇩🇪", "\ufffd\ufffd"),
        ("❤\ufe0f", "❤"),
        ("a\ufe0f", "a\ufffd"),
        ("GLHF! 🏖\ufe0f", "GLHF! 🏖"),
        ("e\u0301clair", "e\u0301clair"),
        ("a" + "\u0300" * 4, "a\u0300\u0300\ufffd\ufffd"),
        ("\u0301x", "\ufffdx"),
        ("日本", "日本"),
    ],
)
def test_a_character_of_uncertain_width_is_replaced_by_a_sign(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_marks_and_wide_characters_are_cut_at_cells() -> None:
    assert [cut("日本語", width) for width in (6, 5, 4)] == ["日本語", "日本…", "日…"]
    assert cut("e\u0301e\u0301e\u0301", 2) == "e\u0301…"
    assert unicodedata.normalize("NFC", cut("e\u0301", 1)) == "é"
