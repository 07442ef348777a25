"""All ranks as a map, the odd one first and marked by a sign."""

from __future__ import annotations

import pytest

from coach.analysis.measured.rank_standing import DATA_WAIT, MEMORY, STEP_TIME, ranks_of
from coach.lookback.history import History
from coach.model.training.metrics import Step
from coach.model.training.telemetry import HostSample, ProcessSample
from coach.render.text import line_width, plain
from coach.tui.render.ranks import oddest_line, rank_view_lines
from tests.tui.fake_session import NOW_S, make_run

ODD = 37


def make_ranks(num_ranks: int, odd: int | None = ODD) -> History:
    history = History()
    for step in range(1, 31):
        history.add_steps(
            Step(
                *(rank, step, NOW_S + step, 0, 1.0, 0.1, 8, 8 * num_ranks),
                data_time_s=0.09 if rank == odd else 0.01,
                step_time_s=0.1,
                memory_allocated_mib=1000.0,
            )
            for rank in range(num_ranks)
        )
    return history


@pytest.mark.parametrize("size", [(78, 18), (118, 30), (198, 44)])
@pytest.mark.parametrize("num_ranks", [2, 16, 64, 256])
def test_all_ranks_are_on_one_screen(size: tuple[int, int], num_ranks: int) -> None:
    width, height = size
    run = make_run(resources={"num_nodes": 1, "nproc_per_node": 8, "gpus_per_node": 8})
    rows = rank_view_lines(make_ranks(num_ranks), run, None, width, height)
    assert len(rows) <= height
    assert [plain(row) for row in rows if line_width(row) > width] == []
    text = "\n".join(map(plain, rows))
    assert str(num_ranks - 1) in text
    if num_ranks > ODD:
        assert f"▲ rank {ODD}: data wait 80 points more than the median" in text
        # In the map, beside its own line: the sign does not depend on a colour.
        assert sum(row.count("▲") for row in map(plain, rows)) >= 4
    else:
        assert "none far from the others" in text


def test_a_rank_that_lags_and_one_that_holds_more_memory_are_odd() -> None:
    history = make_ranks(4, None)
    history.add_steps([Step(1, 40, NOW_S, step_time_s=0.1, memory_allocated_mib=9000.0)])
    ranks = ranks_of(history)
    assert [each.rank for each, _ in ranks.odd(MEMORY)] == [1]
    assert ranks.odd(STEP_TIME) == []
    assert {each.rank: each.behind for each in ranks.standings} == {0: 10, 1: 0, 2: 10, 3: 10}
    assert "rank 1" in plain(oddest_line(ranks, 80))


def test_a_rank_is_shown_on_the_node_of_its_process() -> None:
    history = make_ranks(40)
    history.add_samples([HostSample("gpu07", NOW_S), ProcessSample("gpu07", NOW_S, 1, "python", ODD)])
    assert "rank 37 on gpu07" in plain(oddest_line(ranks_of(history), 80))


def test_a_value_that_no_rank_reports_is_not_judged() -> None:
    history = History()
    history.add_steps(Step(rank, 1, NOW_S) for rank in range(3))
    ranks = ranks_of(history)
    assert ranks.odd(DATA_WAIT) == []
    assert ranks.oddest is None
    assert [each.wait_pct for each in ranks.standings] == [None, None, None]
