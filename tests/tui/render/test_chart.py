"""Plots, and several of them above one time axis."""

from __future__ import annotations

import pytest

from coach.tui.render.chart import Chart, chart_lines, plot
from coach.tui.render.text import line_width, plain

NAN = float("nan")


def test_a_rising_line_goes_from_bottom_left_to_top_right() -> None:
    rows = plot([[(0, 0.0), (1, 1.0)]], 4, 2, (0, 1), (0.0, 1.0))
    assert rows[0][0] == "⠀"
    assert rows[1][0] != "⠀"
    assert rows[0][-1] != "⠀"
    assert rows[1][-1] == "⠀"


def test_what_is_not_finite_breaks_the_line() -> None:
    whole = plot([[(0, 0.5), (1, 0.5), (2, 0.5)]], 9, 1, (0, 2), (0, 1))
    broken = plot([[(0, 0.5), (1, NAN), (2, 0.5)]], 9, 1, (0, 2), (0, 1))
    assert "⠀" not in whole[0]
    assert broken[0].count("⠀") == 7


def test_charts_share_one_time_axis() -> None:
    loss = Chart("loss", "0.5", ([(60, 2.0), (100, 0.5)],))
    use = Chart("utilization", "97 %", ([(0, 97.0), (100, 97.0)],), 100.0)
    rows = [plain(row) for row in chart_lines([loss, use], 50, 20, 0, 100)]
    first_dots = [
        next(at for at, cell in enumerate(row) if 0x2800 < ord(cell) < 0x2900) for row in (rows[1], rows[10])
    ]
    assert first_dots[1] == 8
    assert 8 + 0.55 * 41 < first_dots[0] < 8 + 0.65 * 41
    assert rows[-1].split() == ["100", "s", "before", "newest"]


@pytest.mark.parametrize("size", [(80, 12), (80, 20), (200, 60)])
@pytest.mark.parametrize("points", [[], [(5.0, 1.0)], [(5.0, NAN)], [(float(i), i * 1.5) for i in range(99)]])
def test_charts_keep_to_their_place(size: tuple[int, int], points: list[tuple[float, float | None]]) -> None:
    width, height = size
    charts = [
        Chart("power over limit", "median 71 %", (points, points), 100.0),
        Chart("loss", "–", (points,)),
    ]
    rows = chart_lines(charts, width, height, 0, 100)
    assert len(rows) <= height
    assert all(line_width(row) <= width for row in rows)


def test_lines_are_told_apart_by_how_they_are_drawn_and_the_legend_draws_them_so() -> None:
    ends = (0, 100)
    lines = tuple([(at, value) for at in ends] for value in (0.0, 33.0, 67.0, 100.0))
    legend, _, *rows = chart_lines([Chart("power", "–", lines, 100.0)], 50, 7, 0, 100, ["a", "b", "c", "d"])
    drawn = [plain(row)[8:48] for row in rows[:-1]]
    kinds = {_flat(row): index for index, row in enumerate(reversed(drawn))}
    marks = [_flat(span.text) for span in legend if 0x2800 <= ord(span.text[0]) < 0x2900]
    assert [kinds[mark] for mark in marks] == [0, 1, 2, 3]


def _flat(cells: str) -> str:
    """Which dots along the first eight are set, whatever their height."""
    return "".join("#" if ord(cell) & dots else " " for cell in cells[:4] for dots in (0x47, 0xB8))


def test_a_quantity_without_a_value_says_so() -> None:
    rows = chart_lines([Chart("power", "–", ([],), 100.0)], 60, 6, 0, 100)
    assert "not measured" in plain(rows[1])
