"""Curves of characters."""

from __future__ import annotations

import pytest

from coach.render.text import line_width, plain
from coach.tui.render.curve import bar, curve_lines, sparkline


def test_a_value_that_is_not_finite_breaks_the_line_and_is_named() -> None:
    rows = curve_lines("loss", [(1, 2.0), (2, float("nan")), (3, float("nan"))], 60, 8)
    assert "loss NaN" in plain(rows[0])
    assert "not finite from step 2" in plain(rows[0])


def test_a_value_that_is_finite_again_is_no_critical_end() -> None:
    """Under fp16 the scaler skips steps whose gradients overflow, and the training goes on."""
    inf = float("inf")
    (head, *_) = curve_lines("grad norm", [(1, 2.0), (2, inf), (3, 1.5)], 60, 8)
    assert "▲ not finite at step 2" in plain(head)
    assert "critical" not in [span.tone for span in head]
    (head, *_) = curve_lines("grad norm", [(1, inf), (2, 2.0), (3, inf), (4, inf)], 60, 8)
    assert "✖ not finite from step 3" in plain(head)


@pytest.mark.parametrize("size", [(40, 5), (40, 4), (60, 9), (120, 20)])
@pytest.mark.parametrize("points", [[], [(1, 1.0)], [(1, float("nan"))], [(i, i * 1.5) for i in range(500)]])
def test_a_curve_keeps_to_its_place(size: tuple[int, int], points: list[tuple[float, float | None]]) -> None:
    width, height = size
    rows = curve_lines("throughput", points, width, height, "samples/s")
    assert len(rows) <= height
    assert all(line_width(row) <= width for row in rows)


def test_before_the_first_value_the_curve_says_so() -> None:
    assert "no value yet" in plain(curve_lines("loss", [], 40, 6)[1])


def test_a_bar_shows_unmeasured_and_zero_differently() -> None:
    assert bar(None, 4) == "····"
    assert bar(0.0, 4) == "░░░░"
    assert bar(1.0, 4) == "████"
    assert bar(7.0, 4) == "████"
    assert len(bar(0.33, 8)) == 8


def test_a_sparkline_shows_the_newest_values_and_gaps() -> None:
    assert sparkline([0, None, 100], 3, 0, 100) == "▁·█"
    assert sparkline([0, 0, 100], 2, 0, 100) == "▁█"
    assert sparkline([], 4, 0, 1) == "    "
