"""How findings spell ranks and sizes, and how they read sizes that logs print."""

from __future__ import annotations

import pytest

from coach.rules.from_logs.quoted_evidence import parse_mib, ranks_text, size_text


def test_eight_ranks_are_named_and_of_more_the_first_and_the_last() -> None:
    assert ranks_text([3]) == "rank 3"
    assert ranks_text(range(8)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7"
    assert ranks_text(range(1, 10)) == "9 ranks (1 to 9)"


@pytest.mark.parametrize(
    ("text", "mib"),
    [("7.50 GiB", 7680.0), ("512 MiB", 512.0), ("8G", 8192.0), ("500M", 500.0), ("1048576", 1.0)],
)
def test_a_size_that_a_log_prints_is_read_with_its_unit(text: str, mib: float) -> None:
    assert parse_mib(text) == pytest.approx(mib)


@pytest.mark.parametrize("text", [None, "", "much", "GiB", "1.2.3 GiB", "7 XiB"])
def test_a_text_that_is_no_size_is_unknown_and_not_zero(text: str | None) -> None:
    assert parse_mib(text) is None


def test_sizes_from_a_gibibyte_on_are_shown_in_gibibytes() -> None:
    assert (size_text(1023.0), size_text(1024.0), size_text(7895.0)) == ("1023 MiB", "1.0 GiB", "7.7 GiB")
