"""Several runs in one chart, distinguishable without colour."""

from __future__ import annotations

import math

import pytest

from coach.lookback.history import History
from coach.model.training.metrics import Step
from coach.render.text import line_width, plain
from coach.tui.render.overlay import Overlaid, OverlayView, overlay_lines, summary_lines
from tests.tui.fake_session import NOW_S
from tests.tui.labels import shipped


def make_runs(num_runs: int) -> list[Overlaid]:
    runs = []
    for index in range(num_runs):
        history = History()
        history.add_steps(
            Step(
                *(0, step, NOW_S + step * (index + 1), 0, math.exp(-step / (20 * (index + 1)))),
                data_time_s=0.01,
                step_time_s=0.1 * (index + 1),
                num_samples_global=64,
            )
            for step in range(1, 101)
        )
        runs.append(Overlaid(f"20261121-142233-ddp-{index}f2a", "COMPLETED", history, f"lr {index}"))
    return runs


@pytest.mark.parametrize("size", [(78, 12), (118, 24), (198, 40)])
@pytest.mark.parametrize("view", [OverlayView(), OverlayView(is_by_time=True, is_log=True)])
def test_each_run_has_its_letter_on_its_line_at_every_size(size: tuple[int, int], view: OverlayView) -> None:
    runs = make_runs(4)
    rows = overlay_lines(runs, view, *size, shipped)
    assert len(rows) <= size[1]
    assert [plain(row) for row in rows if line_width(row) > size[0]] == []
    chart = [plain(row)[9:] for row in rows[2:-1]]
    for letter in "ABCD":
        assert sum(row.count(letter) for row in chart) >= 2, letter
    legend = "\n".join(map(plain, summary_lines(runs, size[0])))
    assert all(f" {letter} " in legend for letter in "ABCD")


def test_runs_whose_steps_have_only_a_reward_are_compared_without_curves() -> None:
    history = History()
    history.add_steps(Step(0, step, NOW_S + step, 0, None) for step in range(1, 10))
    runs = [Overlaid(name, "COMPLETED", history) for name in ("a", "b")]
    for view in (OverlayView(), OverlayView(is_by_time=True, first=3)):
        (row,) = overlay_lines(runs, view, 78, 14, shipped)
        assert "neither a loss" in plain(row)


def test_by_time_a_slower_run_is_longer_and_by_step_all_end_together() -> None:
    by_step = [plain(row) for row in overlay_lines(make_runs(2), OverlayView(), 78, 14, shipped)]
    by_time = [
        plain(row) for row in overlay_lines(make_runs(2), OverlayView(is_by_time=True), 78, 14, shipped)
    ]

    def last_of(letter: str, rows: list[str]) -> int:
        return max(row.rfind(letter) for row in rows[2:-1])

    assert last_of("A", by_step) >= 74
    assert last_of("A", by_time) < 50 < last_of("B", by_time)


def test_runs_without_a_known_step_say_so() -> None:
    rows = overlay_lines([Overlaid("x", None, History())], OverlayView(), 78, 12, shipped)
    assert "no step of these runs is known" in plain(rows[0])
