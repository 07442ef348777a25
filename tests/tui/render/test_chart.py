"""Plots, and several of them above one time axis."""

from __future__ import annotations

import pytest

from coach.render.text import line_width, plain
from coach.tui.render.axis import XAxis
from coach.tui.render.chart import Chart, Mark, Notes, Stretch, chart_lines, plot
from coach.tui.render.curve import curve_lines

NAN = float("nan")


def test_a_rising_line_goes_from_bottom_left_to_top_right() -> None:
    rows = plot([[(0, 0.0), (1, 1.0)]], 4, 2, (0, 1), (0.0, 1.0))
    assert rows[0][0] == "⠀"
    assert rows[1][0] != "⠀"
    assert rows[0][-1] != "⠀"
    assert rows[1][-1] == "⠀"


def test_a_value_that_is_not_finite_breaks_the_line() -> None:
    whole = plot([[(0, 0.5), (1, 0.5), (2, 0.5)]], 9, 1, (0, 2), (0, 1))
    broken = plot([[(0, 0.5), (1, NAN), (2, 0.5)]], 9, 1, (0, 2), (0, 1))
    assert "⠀" not in whole[0]
    assert broken[0].count("⠀") == 7


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize(
    "values",
    [(1.0, 1.7e308), (1.7e308, 1.7e308), (-1.7e308, 1.7e308), (0.0, 5e-324), (5e-324, 5e-324)],
    ids=["diverged", "constant", "both ways", "vanished", "tiny"],
)
def test_a_loss_at_the_ends_of_a_float_is_drawn(values: tuple[float, float], is_log: bool) -> None:
    points = [(0.0, values[0]), (1.0, values[1])]
    for height in (5, 12):
        rows = chart_lines([Chart("loss", "", (points,), is_log=is_log)], 60, height, XAxis(0, 1))
        assert any(0x2800 < ord(cell) < 0x2900 for row in rows for cell in plain(row))
    assert any(
        0x2800 < ord(cell) < 0x2900 for row in curve_lines("loss", points, 60, 8) for cell in plain(row)
    )


def test_charts_share_one_time_axis() -> None:
    loss = Chart("loss", "0.5", ([(60, 2.0), (100, 0.5)],))
    use = Chart("utilization", "97 %", ([(0, 97.0), (100, 97.0)],), 100.0)
    rows = [plain(row) for row in chart_lines([loss, use], 50, 20, XAxis(0, 100))]
    of_use = next(at for at, row in enumerate(rows) if "utilization" in row)
    first_dots = [
        min(at for row in part for at, cell in enumerate(row) if 0x2800 < ord(cell) < 0x2900)
        for part in (rows[1:of_use], rows[of_use + 1 : -1])
    ]
    assert first_dots[1] == 9
    assert 9 + 0.55 * 40 < first_dots[0] < 9 + 0.65 * 40
    assert rows[-1].split() == ["╵0", "s", "╵1", "min"]


def test_with_little_room_the_first_chart_stays_large_and_the_others_become_strips() -> None:
    charts = [Chart("loss", "0.5", ([(0, 2.0), (100, 0.5)],), now="0.5")]
    charts += [
        Chart(name, "9 %", ([(0, 9.0), (50, None), (60, 90.0), (100, 90.0)],), 100.0, short=name, now="9 %")
        for name in ("use", "power", "memory")
    ]
    rows = [plain(row) for row in chart_lines(charts, 80, 6, XAxis(0, 100), next_key="M")]
    assert rows[0].startswith(" loss")
    assert rows[3].startswith(" use")
    assert "▂" in rows[3]
    assert "█" not in rows[3].split("▇")[0]
    assert rows[-1].strip() == "M: power, memory"
    # A strip is above the same axis; unmeasured values are dots.
    assert rows[3][18 + 1 + 31] == "·"


def test_events_stand_below_the_charts_with_a_legend_and_a_findings_stretch_is_shaded() -> None:
    notes = Notes(
        [Mark(25, "C", "checkpoint"), Mark(50, "E", "epoch end"), Mark(75, "C", "checkpoint")],
        [Stretch(50, 100, "DAT001")],
    )
    rows = chart_lines([Chart("loss", "0.5", ([(0, 2.0), (100, 0.5)],))], 60, 9, XAxis(0, 100), (), notes)
    events, stretch, _, legend = (plain(row) for row in rows[-4:])
    cells = 60 - 8 - 2
    assert [at - 9 for at, cell in enumerate(events) if cell in "CE"] == [
        round(share * (cells - 1)) for share in (0.25, 0.5, 0.75)
    ]
    assert stretch.split()[0] == "DAT001"
    assert stretch.split()[1] == "▲" + "▒" * 25
    assert legend.split() == ["C", "checkpoint", "E", "epoch", "end"]
    shaded = sum(len(span.text) for span in rows[1] if span.tone == "shaded")
    assert shaded == 26


def test_a_logarithmic_scale_labels_powers_of_ten_and_leaves_out_values_up_to_0() -> None:
    points = [(float(at), 10.0 ** -(at / 20)) for at in range(80)] + [(90.0, 0.0), (100.0, -1.0)]
    rows = [
        plain(row) for row in chart_lines([Chart("loss", "", (points,), is_log=True)], 60, 14, XAxis(0, 100))
    ]
    labels = [row[:8].strip() for row in rows[1:-1]]
    assert [label for label in labels if label in ("1", "0.1", "0.01")] == ["1", "0.1", "0.01"]
    ends = [row[9:].rstrip("⠀ ") for row in rows[1:-1]]
    assert max(map(len, ends)) <= 41


@pytest.mark.parametrize("size", [(80, 12), (80, 20), (200, 60)])
@pytest.mark.parametrize("points", [[], [(5.0, 1.0)], [(5.0, NAN)], [(float(i), i * 1.5) for i in range(99)]])
def test_charts_keep_to_their_place(size: tuple[int, int], points: list[tuple[float, float | None]]) -> None:
    width, height = size
    charts = [
        Chart("power over limit", "median 71 %", (points, points), 100.0),
        Chart("loss", "–", (points,)),
    ]
    rows = chart_lines(charts, width, height, XAxis(0, 100))
    assert len(rows) <= height
    assert all(line_width(row) <= width for row in rows)


def test_each_line_has_a_stroke_of_its_own_and_the_legend_shows_it() -> None:
    ends = (0, 100)
    lines = tuple([(at, value) for at in ends] for value in (0.0, 33.0, 67.0, 100.0))
    legend, _, *rows = chart_lines(
        [Chart("power", "–", lines, 100.0)], 50, 10, XAxis(0, 100), ["a", "b", "c", "d"]
    )
    drawn = [plain(row)[9:49] for row in rows[:-1]]
    strokes = [_flat(row) for row in reversed(drawn) if _flat(row).strip()]
    kinds = {stroke: index for index, stroke in enumerate(strokes)}
    marks = [_flat(span.text) for span in legend if 0x2800 <= ord(span.text[0]) < 0x2900]
    assert [kinds[mark] for mark in marks] == [0, 1, 2, 3]


def _flat(cells: str) -> str:
    """The set dots among the first eight, at any height."""
    return "".join("#" if ord(cell) & dots else " " for cell in cells[:4] for dots in (0x47, 0xB8))


def test_a_quantity_without_a_value_says_so() -> None:
    rows = chart_lines([Chart("power", "–", ([],), 100.0)], 60, 6, XAxis(0, 100))
    assert "power not measured" in plain(rows[0])
