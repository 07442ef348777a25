"""A training in the cells of a line, and the columns that each width has room for."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from coach.analysis.jobs.progress import Progress
from coach.lookback.glance import DeviceUse, Glance
from coach.lookback.history import CurvePoint
from coach.model.judging.finding import Verdict
from coach.render.text import line_width, plain
from coach.tui.render.queue import JOB_COLUMNS, job_rows, queue_of, training_columns
from coach.tui.render.running import curve_blocks, heading, launch_lines, run_lines
from coach.tui.render.table import Cell, fit_columns, header_line, row_line
from coach.tui.render.training import finding_cell, look_cell, training_cells
from coach.tui.training import Training
from tests.tui.fake_session import NOW_S, make_job, make_run, nan_diagnosis


def training(last_loss: float = 1.25, use: DeviceUse | None = None) -> Training:
    losses = [3.0, 2.5, 2.0, 1.5, last_loss]
    curve = tuple(CurvePoint(step, 1, None, loss, 1234.0, 0.01, 0.1) for step, loss in enumerate(losses, 1))
    gpus = {"node1": use or DeviceUse(2, NOW_S - 2, 62.0, 30_000, 160_000, 500, 800)}
    return Training(Glance(curve, gpus), Progress(500, 2000, 754.0))


def line_at(width: int, told: Training | None, verdict: Cell | None, *, are_all_shown: bool = False) -> str:
    job = make_job("17", "ada")
    rows = job_rows(queue_of([job], "ada", tuple), "ada", NOW_S, lambda _: (told, verdict))
    layout = fit_columns(JOB_COLUMNS, width, training_columns(width, are_all_shown=are_all_shown))
    assert line_width(header_line(layout)) <= width
    row = row_line(rows.row(0), layout)
    assert line_width(row) <= width
    return plain(row)


@pytest.mark.parametrize("width", [80, 93, 107, 120, 133, 164, 200])
@pytest.mark.parametrize("are_all_shown", [True, False])
def test_every_width_shows_state_progress_and_verdict_whole(width: int, are_all_shown: bool) -> None:
    row = line_at(width, training(), Cell("✖ NUM001 x"), are_all_shown=are_all_shown)
    assert all(told in row for told in ("RUNNING", "25%", "✖ NUM001 x"))
    if not are_all_shown or width >= 100:
        assert "1.25" in row
        assert "62%" in row


@pytest.mark.parametrize("width", [60, 79, 100, 107, 118, 128, 133, 164, 176])
@pytest.mark.parametrize("are_all_shown", [True, False])
def test_no_title_of_a_column_is_cut(width: int, are_all_shown: bool) -> None:
    names = training_columns(width, are_all_shown=are_all_shown)
    layout = fit_columns(JOB_COLUMNS, width, names)
    assert [column.name for _, column, _ in layout.columns] == [*names]
    assert all(len(column.title) <= room for _, column, room in layout.columns)


def test_a_wide_line_has_steps_time_to_go_speed_memory_and_power() -> None:
    row = line_at(200, training(), None)
    for told in ("25%", "12:34", "1,234", "29.3G/156G", "500/800 W"):
        assert told in row


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ((None, 52_310.0), "52.3k tok"),
        ((None, 1_234_000.0), "1.23M tok"),
        ((None, 812.0), "812 tok"),
        ((1234.0, 52_310.0), "1,234"),
        ((None, None), "–"),
    ],
)
def test_the_column_of_samples_names_the_unit_of_a_job_that_prints_only_tokens(
    rates: tuple[float | None, float | None], text: str
) -> None:
    point = CurvePoint(9, 1, None, 1.0, rates[0], None, 0.1, tokens_per_s=rates[1])
    cells = training_cells(Training(Glance((point,))), is_running=True, now_s=NOW_S)
    assert cells[3].text == text
    column = next(column for column in JOB_COLUMNS if column.name == "rate")
    assert len(text) <= column.width
    assert text in line_at(200, Training(Glance((point,))), None)


def test_a_nan_loss_has_a_sign_and_an_old_gpu_use_has_its_age() -> None:
    old = DeviceUse(1, NOW_S - 240, 62.0)
    for width, said in ((200, "62% 4 min"), (80, "62% old")):
        row = line_at(width, training(math.nan, old), None)
        assert "✖ NaN" in row
        assert said in row


def test_unmeasured_values_and_the_current_use_of_an_ended_job_are_dashes() -> None:
    assert {cell.text for cell in training_cells(None, is_running=True, now_s=NOW_S)} == {"–"}
    cells = training_cells(training(), is_running=False, now_s=NOW_S)
    assert [cell.text for cell in cells[1:2] + cells[3:]] == ["–"] * 5


def test_a_finding_is_cut_between_words_and_has_its_summary_where_there_is_room() -> None:
    finding = nan_diagnosis().findings[0]
    cell = finding_cell(finding)
    assert cell.fill is not None
    assert cell.fill(24) == "✖ NUM001 lr too high"
    assert cell.fill(16) == "✖ lr too high"
    assert cell.fill(11) == "✖ lr too…"
    assert cell.fill(60).startswith("✖ NUM001 The loss is NaN since step 2")


@pytest.mark.parametrize(
    ("summary", "shown"),
    [
        ("KeyError: 'learning_rate'", "✖ KeyError"),
        ("torch.cuda.OtherError: 2 of 3 devices", "✖ OtherError"),
        ("No rank left a message", "✖ code error"),
    ],
)
def test_a_narrow_column_names_the_kind_of_an_error_not_its_code(summary: str, shown: str) -> None:
    finding = replace(nan_diagnosis().findings[0], rule="COD001", cause="code_error", summary=summary)
    cell = finding_cell(finding)
    assert cell.fill is not None
    assert cell.fill(13) == shown
    assert cell.fill(60) == f"✖ COD001 {summary}"


@pytest.mark.parametrize(
    ("rule", "cause"), [("JOB011", "slurm_invalid_request"), ("END001", "unknown_failure")]
)
def test_a_narrow_column_shows_the_code_where_one_word_of_the_cause_would_be_left(
    rule: str, cause: str
) -> None:
    finding = replace(nan_diagnosis().findings[0], rule=rule, cause=cause, summary="It ended")
    cell = finding_cell(finding)
    assert cell.fill is not None
    assert cell.fill(9) == f"✖ {rule}"


def test_no_finding_is_healthy_only_where_it_was_seen_to_train() -> None:
    quiet = replace(nan_diagnosis(), findings=())
    healthy, unknown = look_cell(replace(quiet, health=Verdict.HEALTHY)), look_cell(quiet)
    assert healthy is not None
    assert unknown is not None
    assert (healthy.text, unknown.text) == ("✓ healthy", "? unknown")
    assert look_cell(None) is None


@pytest.mark.parametrize(("width", "height"), [(80, 7), (108, 20), (200, 40)])
def test_the_curves_of_running_trainings_fill_the_lines_they_get(width: int, height: int) -> None:
    shown = [(heading(str(number), "ddp", None, None), training()) for number in range(3)]
    rows = curve_blocks(shown, width, height)
    assert height - height // 7 < len(rows) <= height
    assert all(line_width(row) <= width for row in rows)
    assert ("…and" in plain(rows[0])) == (height == 7)


def test_without_room_or_training_there_are_no_curves() -> None:
    assert curve_blocks([], 100, 30) == []
    assert curve_blocks([(heading("1", "ddp", None, None), training())], 100, 4) == []


def test_without_curves_the_newest_runs_or_the_recipes_fill_the_lines() -> None:
    run, verdict = make_run(ended_time_s=NOW_S - 300), Cell("✖ NUM001 nan loss", "critical")
    rows = run_lines([(run, "FAILED", verdict), (run, None, None)], NOW_S, 80, 5)
    assert [line_width(row) <= 80 for row in rows] == [True, True]
    assert all(told in plain(rows[0]) for told in ("ddp-4f2a", "✖ FAILED", "5 min ago", "✖ NUM001 nan loss"))
    assert "lr 1e+20" in plain(rows[1])
    (row,) = launch_lines([("1", "baseline", "One device")], 60)
    assert plain(row).split() == ["1", "baseline", "One", "device"]


def test_without_a_measured_use_the_names_have_its_room() -> None:
    columns = training_columns(80, are_all_shown=False, has_use=False)
    assert "use" not in columns
    widths = {column.name: width for _, column, width in fit_columns(JOB_COLUMNS, 80, columns).columns}
    assert widths["name"] >= 11
