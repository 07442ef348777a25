"""The words that a pattern needs are derived from it."""

from __future__ import annotations

import pytest

from coach.rules.wordings.literals import literals_of


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        (r"CUDA error: out of memory", ("CUDA error: out of memor",)),
        (r"(?:CUDA|HIP) error: out", ("CUDA error: out", "HIP error: out")),
        (r"[Dd]isk quota exceeded", ("Disk quota exceeded", "disk quota exceeded")),
        (r"error \d+ of the driver", (" of the driver",)),
        (r"(?P<what>bus error|segfault)\b", ("bus error", "segfault")),
        (r"(?:very )?unlikely", ("unlikely",)),
        (r"(?i:oops)ie \d+ happened", (" happened",)),
        (r"(?=.*cudnn).*version", ("version",)),
        (r"Error: (?:no space|quota)", ("Error: no space", "Error: quota")),
        (r"(?:abc){2,}", ("abc",)),
    ],
)
def test_the_longest_words_that_every_match_holds_are_taken(pattern: str, literals: tuple[str, ...]) -> None:
    assert literals_of(pattern) == literals


@pytest.mark.parametrize("pattern", [r"\d+", r"ab", r"(?:loss|\d)", r"Error: .*"])
def test_a_pattern_without_such_words_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="no word of at least 3 characters"):
        literals_of(pattern)
