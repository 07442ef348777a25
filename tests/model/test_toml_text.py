"""TOML that would take minutes, or that Python cannot count with, is refused in one line."""

from __future__ import annotations

import pytest

from coach.model.toml_text import MAX_CHARACTERS, MAX_KEY_PARTS, parse_toml

LONG = ".".join(["a"] * (MAX_KEY_PARTS + 1))
QUOTED = " . ".join(["'a'", '"b"'] * MAX_KEY_PARTS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"b = 1\n{LONG} = 1\n", r"a key has more than 64 dotted parts \(at line 2, column 129\)"),
        (f"[{LONG}]\n", r"a key has more than 64 dotted parts"),
        (f"[[ {QUOTED} ]]\n", r"a key has more than 64 dotted parts"),
        (f"a = {{b = 1, {LONG} = 1}}\n", r"a key has more than 64 dotted parts"),
        (".".join(["a"] * 20_000) + " = 1", r"a key has more than 64 dotted parts"),
        ("# " * (MAX_CHARACTERS // 2) + "#", r"the file is too long: at most 1,048,576 characters are read"),
        ("a = 1\nb = [9223372036854775808]\n", r"does not fit into 64 bits \(at line 2, column 6\)"),
        ("a.b = -9_223_372_036_854_775_809\n", r"does not fit into 64 bits \(at line 1, column 8\)"),
        (f"a = 0x{'f' * 5000}\n", r"does not fit into 64 bits \(at line 1, column 5\)"),
        (f"a = {'9' * 400}\n", r"does not fit into 64 bits \(at line 1, column 5\)"),
    ],
)
def test_toml_that_no_person_wrote_is_refused_with_its_position(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_toml(text)


def test_text_in_a_string_counts_neither_as_key_nor_as_integer() -> None:
    text = f"c = '{LONG}.a {'9' * 400}'\n{LONG[2:]} = 9223372036854775807\n"
    table = parse_toml(text)
    assert len(table) == 2
