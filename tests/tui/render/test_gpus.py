"""The activity of a job's GPUs, in lines."""

from __future__ import annotations

import re

import pytest

from coach.analysis.measured.gpu_quantities import UTILIZATION
from coach.model.training.telemetry import GpuEvent, GpuHealth, GpuLink, HostSample, Rung
from coach.render.text import Line, line_width, plain
from coach.tui.render.gpu_history import history_lines, process_lines
from coach.tui.render.gpus import (
    grid_lines,
    heat_rows,
    newest_samples,
    quantity_line,
    source_lines,
    spread_lines,
    trouble_lines,
)
from tests.tui.fake_session import NOW_S
from tests.tui.gpu_jobs import make_gpu, make_gpu_job


def text(rows: list[Line]) -> str:
    return "\n".join(map(plain, rows))


@pytest.mark.parametrize("width", [60, 79, 119, 199])
def test_beside_utilization_stands_how_hard_the_gpu_works(width: int) -> None:
    history = make_gpu_job()
    head, *rows = text(grid_lines(history, history.gpus, NOW_S, width)).splitlines()
    assert head.index("POWER/LIMIT") < head.index("UTIL")
    assert len(rows) == 8
    assert "16%  " in rows[3]
    assert "97%" in rows[3]
    assert all("1 s" in row for row in rows)


def test_sm_activity_has_a_column_where_it_was_measured() -> None:
    history = make_gpu_job(num_samples=1)
    assert "SM ACTIVE" not in text(grid_lines(history, history.gpus, NOW_S, 119))
    history.add_samples([make_gpu("node01", 0, NOW_S, sm_activity_pct=42.0)])
    head, first, second, *_ = text(grid_lines(history, history.gpus, NOW_S, 119)).splitlines()
    assert "SM ACTIVE" in head
    assert "42%" in first
    assert "········    –" in second


def test_a_value_that_has_grown_old_is_marked_and_not_compared() -> None:
    history = make_gpu_job()
    history.add_samples([make_gpu("node01", gpu, NOW_S + 60) for gpu in range(7)])
    assert "▲61 s" in text(grid_lines(history, history.gpus, NOW_S + 60, 119)).splitlines()[8]
    fresh = newest_samples(history, history.gpus, NOW_S + 60)
    assert len(fresh) == 7
    assert "7/8" in text(spread_lines(list(fresh.values()), 8, 79))
    assert heat_rows(history, history.gpus, fresh, UTILIZATION)[0].values[7] is None


def test_a_gpu_missing_from_its_node_s_records_is_marked_before_the_node_is_silent() -> None:
    history = make_gpu_job()
    history.add_samples([make_gpu("node01", gpu, NOW_S + 12) for gpu in range(8) if gpu != 6])
    rows = text(grid_lines(history, history.gpus, NOW_S + 12, 119)).splitlines()
    assert [row for row in rows if "▲" in row] == [rows[7]]
    assert ("node01", 6) not in newest_samples(history, history.gpus, NOW_S + 12)


def test_the_screen_names_the_source_of_its_numbers_and_their_gaps() -> None:
    history = make_gpu_job(num_nodes=3)
    history.add_samples([HostSample("node02", NOW_S - 3, num_gpus=6, num_gpus_allotted=8)], Rung.STEP)
    shown = text(source_lines(history, history.nodes, 4, NOW_S + 10))
    assert "by the sampler beside the training: 2 nodes, 11 s old" in shown
    assert "srun --overlap): 1 node, 13 s old" in shown
    assert "node02: 6 of 8 GPUs visible" in shown
    assert "nothing measured on 1 of 4 nodes" in shown
    assert "node01 is silent: its last sample is 101 s old" in text(
        source_lines(history, history.nodes[:1], 1, NOW_S + 100)
    )


def test_gpus_of_the_job_without_measurements_have_a_place_in_the_map() -> None:
    history = make_gpu_job(num_nodes=2, per_node=6)
    history.add_samples([HostSample("node02", NOW_S, num_gpus=6, num_gpus_allotted=8)])
    fresh = newest_samples(history, history.gpus, NOW_S)
    first, second = heat_rows(history, history.gpus, fresh, UTILIZATION)
    assert first.values == (97.0,) * 6
    assert second.values == (97.0,) * 6 + (None, None)


def test_utilization_never_stands_alone_as_if_it_were_efficiency() -> None:
    history = make_gpu_job()
    samples = [history.gpu(*key)[-1] for key in history.gpus]
    assert "(power over limit: median 7" in plain(quantity_line(UTILIZATION, samples, 79))
    alone = [make_gpu("node01", 0, NOW_S, power_w=None)]
    assert "power not measured" in plain(quantity_line(UTILIZATION, alone, 79))


def test_the_spread_names_the_least_and_the_most() -> None:
    history = make_gpu_job(num_nodes=2)
    rows = text(spread_lines([history.gpu(*key)[-1] for key in history.gpus], 16, 79)).splitlines()
    power = next(row for row in rows if "power over limit" in row)
    assert power.split()[3:5] == ["16%", "node01:3"]
    assert power.endswith("16/16")


def test_hardware_reports_are_shown_and_healthy_hardware_shows_nothing() -> None:
    history = make_gpu_job()
    assert text(trouble_lines(history, history.gpus, NOW_S, 79)).split(", ") == [
        " ▲ Xid 79 on node01 gpu 3",
        "3 min ago",
    ]
    history.add_samples(
        [GpuHealth("node01", NOW_S, 2, None, ecc_volatile_uncorrected=1, is_row_remap_pending=True)]
    )
    history.add_samples([GpuLink("node01", NOW_S, 5, None, num_nvlinks=18, num_active_nvlinks=17)])
    shown = text(trouble_lines(history, history.gpus, NOW_S, 79))
    assert "node01 gpu 2: 1 uncorrected memory error" in shown
    assert "remapping of a memory row waits for a reset" in shown
    assert "node01 gpu 5: 17 of 18 NVLinks active" in shown


def test_newer_errors_of_other_gpus_do_not_hide_those_of_the_shown_ones() -> None:
    history = make_gpu_job(num_nodes=2)
    history.add_samples([GpuEvent("node02", NOW_S, gpu, None, 31) for gpu in range(3)])
    of_the_first = [key for key in history.gpus if key[0] == "node01"]
    assert "Xid 79 on node01 gpu 3" in text(trouble_lines(history, of_the_first, NOW_S, 79))


def test_each_rank_has_a_row_with_its_memory() -> None:
    head, first, *_ = text(process_lines(make_gpu_job(2).processes("node02"), NOW_S, 79)).splitlines()
    assert head.split() == ["RANK", "NODE", "PID", "GPU", "GPU", "MEM", "CPU", "RSS", "AGE", "PROCESS"]
    assert first.split() == ["8", "node02", "4000", "0", "59.6G", "98%", "5.08G", "1", "s", "python3.11"]


def test_the_past_has_the_loss_above_the_gpus() -> None:
    history = make_gpu_job()
    rows = text(history_lines(history, history.gpus, NOW_S, 79, 20)).splitlines()
    assert rows[0].split()[1::2] == ["median", "most", "least"]
    titles = [row.split("─")[1].strip() for row in rows if row.startswith("─")]
    assert [title.split()[0] for title in titles] == ["loss", "power", "utilization"]
    assert [row.split()[0] for row in rows if "▅" in row or "▆" in row] == ["memory", "temp"]
    assert "median 73 %, 15.7 (node01:3) to 73 (node01:0), 57 apart" in titles[1]
    assert "97 %, all alike" in titles[2]
    (one,) = (
        row
        for row in text(history_lines(history, [("node01", 3)], NOW_S, 79, 20)).splitlines()
        if "power" in row
    )
    assert "15.7 %" in one
    assert "median" not in one


def test_a_few_gpus_have_a_line_each_and_one_that_is_silent_has_its_past_but_no_newest_value() -> None:
    history = make_gpu_job(per_node=4)
    head = text(history_lines(history, history.gpus, NOW_S, 79, 40)).splitlines()[0]
    assert re.findall(r"gpu \d", head) == ["gpu 0", "gpu 1", "gpu 2", "gpu 3"]
    marks = re.findall("[\u2800-\u28ff]+", head)
    assert len(set(marks)) == 4, "without colour, too, they are told apart"
    (silent,) = (
        row
        for row in text(history_lines(history, [("node01", 3)], NOW_S + 60, 79, 20)).splitlines()
        if "power" in row
    )
    assert "–" in silent
    assert "median" not in silent


@pytest.mark.parametrize("width", [60, 79, 119])
def test_nothing_is_wider_than_its_pane_and_no_name_reaches_the_terminal(width: int) -> None:
    history = make_gpu_job(num_samples=3)
    evil = "no\x1b[2Jde" * 20
    history.add_samples([make_gpu(evil, 0, NOW_S, name=evil, clocks_event_reasons=(evil,))])
    history.add_samples([HostSample(evil, NOW_S, num_gpus=1, num_gpus_allotted=2)])
    samples = [history.gpu(*key)[-1] for key in history.gpus]
    rows = [
        *grid_lines(history, history.gpus, NOW_S, width),
        *spread_lines(samples, 9, width),
        *history_lines(history, history.gpus, NOW_S, width, 30),
        quantity_line(UTILIZATION, samples, width),
    ]
    assert [plain(row) for row in rows if line_width(row) > width] == []
    assert "\x1b" not in text([*rows, *source_lines(history, [evil], 1, NOW_S)])
