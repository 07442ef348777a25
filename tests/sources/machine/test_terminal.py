"""What a terminal says of itself in its variables."""

from __future__ import annotations

import pytest

from coach.sources.machine.terminal import count_colours, locale_encoding


@pytest.mark.parametrize(
    ("env", "colours"),
    [
        ({"TERM": "xterm-256color"}, 256),
        ({"TERM": "tmux-256color", "COLORTERM": "truecolor"}, 2**24),
        ({"TERM": "vt100"}, 0),
        ({"TERM": "linux"}, 8),
        ({"TERM": "dumb"}, 0),
        ({}, 0),
        ({"TERM": "no-such-terminal"}, None),
    ],
)
def test_colours_are_counted_as_the_terminal_tells_them(env: dict[str, str], colours: int | None) -> None:
    assert count_colours(env) == colours


@pytest.mark.parametrize(
    ("env", "encoding"),
    [
        ({"LANG": "en_US.utf8"}, "UTF-8"),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "de_DE.ISO-8859-1@euro"}, "ISO-8859-1"),
        ({"LANG": "C"}, None),
        ({}, None),
    ],
)
def test_the_letters_are_those_of_the_locale_that_wins(env: dict[str, str], encoding: str | None) -> None:
    assert locale_encoding(env) == encoding
