"""A span of time reads the same wherever coach shows it."""

from __future__ import annotations

import pytest

from coach.model.training.other_machine import rough_age
from coach.render.text import age


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (119.4, "119 s"),
        (119.6, "2 min"),
        (150, "3 min"),
        (7169, "119 min"),
        (7171, "2 h"),
        (9000, "3 h"),
        (171_000, "2 d"),
        (216_000, "3 d"),
    ],
)
def test_screens_and_commands_round_a_span_alike(seconds: float, words: str) -> None:
    assert rough_age(seconds) == age(seconds) == words
