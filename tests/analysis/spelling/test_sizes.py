from __future__ import annotations

import pytest

from coach.analysis.spelling.sizes import format_bytes


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (19_800_000, "19.8 MB"),
        (999_600_000, "1 GB"),
        (1.5e12, "1.5 TB"),
        (12e18, "12 EB"),
    ],
)
def test_a_size_has_three_digits_and_a_unit(num_bytes: float, text: str) -> None:
    assert format_bytes(num_bytes) == text
