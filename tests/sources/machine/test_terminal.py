"""Properties of a terminal, from its environment variables."""

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
def test_the_number_of_colours_follows_from_the_terminals_name(
    env: dict[str, str], colours: int | None
) -> None:
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
def test_the_encoding_is_that_of_the_locale_variable_in_effect(
    env: dict[str, str], encoding: str | None
) -> None:
    assert locale_encoding(env) == encoding
