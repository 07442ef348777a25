"""Many GPUs on one screen."""

from __future__ import annotations

import re

from coach.analysis.measured.gpu_quantities import POWER
from coach.render.text import line_width, plain
from coach.tui.render.heat import HeatRow, heat_lines


def make_rows(num_nodes: int, value: float | None = 71.0) -> list[HeatRow]:
    return [HeatRow(f"node{index + 1:02}", (value,) * 8) for index in range(num_nodes)]


def test_64_nodes_with_8_gpus_each_are_on_one_small_screen() -> None:
    rows = heat_lines(make_rows(64), POWER, 79, 18)
    assert len(rows) <= 18
    assert all(line_width(row) <= 79 for row in rows)
    shown = re.findall(r"(node\d\d) ([\d–]{8})(?!\S)", "\n".join(map(plain, rows)))
    assert sorted(name for name, _ in shown) == [f"node{index + 1:02}" for index in range(64)]
    assert {digits for _, digits in shown} == {"77777777"}
    assert "digit: tens of %" in plain(rows[-1])


def test_with_enough_room_the_numbers_are_whole() -> None:
    few = plain(heat_lines(make_rows(4), POWER, 79, 18)[0])
    assert few.split() == ["node01"] + ["▆", "71"] * 8
    more = "\n".join(map(plain, heat_lines(make_rows(30), POWER, 85, 18)))
    assert "node01   71  71" in more


def test_more_nodes_than_fit_are_all_there_to_be_scrolled_to() -> None:
    rows = heat_lines(make_rows(99), POWER, 79, 12)
    assert len(rows) > 12
    assert "node99" in "\n".join(map(plain, rows))


def test_an_unknown_value_is_a_dash_and_an_outlier_is_marked() -> None:
    rows = [HeatRow("node01", (71.0, None, 8.0, 70.0, 100.0)), HeatRow("node02", (69.0,) * 5)]
    spans = heat_lines(rows, POWER, 79, 10)[0]
    assert [span.text.strip(" ▁▂▃▄▅▆▇█") for span in spans[1:6]] == ["71", "–", "▲  8", "70", "▲100"]
    assert [span.tone for span in spans[1:6]] == ["accent", "muted", "warning", "accent", "warning"]


def test_long_names_show_their_end() -> None:
    rows = [HeatRow(f"rack-b-gpu-h100-{index:04}", (50.0,) * 8) for index in range(3)]
    shown = "\n".join(map(plain, heat_lines(rows, POWER, 79, 10)))
    assert all(f"-h100-{index:04}" in shown for index in range(3))
