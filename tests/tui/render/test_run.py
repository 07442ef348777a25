"""The Run screen's parts, each at both widths."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Fix, Verdict
from coach.model.training.metrics import MetricEvent
from coach.model.training.telemetry import SensorGap
from coach.render.text import Line, line_width, plain
from coach.tui.render.finding import finding_detail, findings_lines
from coach.tui.render.job import job_head
from coach.tui.render.nodes import node_lines, rank_lines
from coach.tui.render.run import (
    head_line,
    parameters_lines,
    parent_lines,
    step_time_line,
    target_lines,
    times_text,
)
from tests.tui.fake_session import (
    NOW_S,
    add_gpus,
    applied_fix,
    make_history,
    make_job,
    make_run,
    make_target,
    nan_diagnosis,
)
from tests.tui.labels import shipped

GAP = SensorGap("node1", "gpu.utilization", "no NVIDIA driver", "run on a node with GPUs")
WIDTHS = [59, 79, 119]


def text(rows: list[Line]) -> str:
    return "\n".join(map(plain, rows))


def test_gpus_that_could_not_be_measured_are_named_with_the_reason_never_as_zero() -> None:
    shown = text(node_lines(make_history(), [GAP], True, NOW_S, 100))
    assert "gpu not measured: no NVIDIA driver  (node1)" in shown
    assert "0%" not in shown


def test_the_command_of_a_fix_stands_on_a_line_of_its_own() -> None:
    (finding,) = nan_diagnosis().findings[:1]
    fix = Fix(
        "See what is full (bytes or number of files) and make room", command="quota -s; df -h .; df -i ."
    )
    full = replace(nan_diagnosis(), findings=(replace(finding, fixes=(fix,)),))
    shown = text(findings_lines(full, 60, False, shipped)).splitlines()
    assert shown[-1].strip() == "quota -s; df -h .; df -i ."


def test_a_run_that_asked_for_no_gpu_shows_that_instead() -> None:
    shown = text(node_lines(make_history(), [GAP], False, NOW_S, 100))
    assert "no GPU was requested" in shown
    assert "driver" not in shown


def test_each_value_of_a_node_has_its_age() -> None:
    shown = text(node_lines(add_gpus(make_history()), [], True, NOW_S + 40, 119))
    assert "41 s old" in shown
    assert "gpu 0" in shown
    assert "20G/80G" in shown
    assert "250/400 W" in shown


def test_a_run_without_measurements_yet_says_so() -> None:
    assert "nothing measured on the nodes yet" in text(node_lines(History(), [], None, NOW_S, 80))
    assert "no rank has written a step yet" in text(rank_lines(History(), 80))
    assert "not measured yet" in text([step_time_line([], 80)])


def test_the_slowest_rank_is_named() -> None:
    rows = text(rank_lines(make_history(), 100)).splitlines()
    assert "slowest" not in rows[1]
    assert "▲ slowest, +1" in rows[2]


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_its_pane(width: int) -> None:
    history, run = (
        add_gpus(make_history(lost_at=100)),
        make_run(parent_run_id="20261121-120000-ddp-aaaa", fix=applied_fix()),
    )
    rows = [
        *node_lines(history, [GAP], True, NOW_S, width),
        *rank_lines(history, width),
        step_time_line(history.curve, width),
        *findings_lines(nan_diagnosis(), width, True, shipped),
        head_line(run, make_target(run), "RUNNING", NOW_S, width),
        *parent_lines(run, width, shipped),
        *parameters_lines(run, width),
    ]
    assert [plain(row) for row in rows if line_width(row) > width] == []


def test_the_primary_finding_stands_first_with_word_and_sign_and_its_consequence_below() -> None:
    rows = text(findings_lines(nan_diagnosis(), 119, True, shipped)).splitlines()
    assert rows[0].startswith(" ✖ critical NUM001 loss-not-finite")
    assert rows[0].endswith("F fix")
    assert "rank-0.jsonl:3" in text(findings_lines(nan_diagnosis(), 119, True, shipped))
    assert rows[-1].startswith("  └ follows from NUM001: ▲ warning GPU001")


def test_not_judged_is_not_healthy() -> None:
    assert text(findings_lines(None, 80, True, shipped)) == " – not checked yet"
    known = Diagnosis("x", "RUNNING", (), ())
    assert "? nothing wrong seen" in text(findings_lines(known, 80, True, shipped))
    assert "✓ healthy" in text(findings_lines(replace(known, health=Verdict.HEALTHY), 80, True, shipped))


def test_the_detail_lists_missing_measurements_and_how_to_get_them() -> None:
    shown = text(finding_detail(nan_diagnosis(), 100, shipped))
    assert "gpu.utilization: no NVIDIA driver" in shown
    assert "run on a node with GPUs" in shown
    assert "changes the training result" in shown


def test_times_come_from_the_queue_while_it_runs_and_from_the_run_when_it_ended() -> None:
    run, job = make_run(), make_job()
    assert times_text(run, make_target(run, job), NOW_S) == "2:10 used, 27:50 left"
    ended = replace(run, state="COMPLETED", ended_time_s=NOW_S - 10)
    assert times_text(ended, make_target(ended), NOW_S) == "ran 2:00, ended 10 s ago"
    assert times_text(replace(run, started_time_s=None, state="PENDING"), None, NOW_S) == "not started"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_target_accuracy_is_shown_with_the_time_it_took(width: int) -> None:
    run = make_run()
    asked = replace(run, parameters={**run.parameters, "target_accuracy": 0.9}, state="COMPLETED")
    best = MetricEvent(0, "eval", NOW_S, 100, {"accuracy": 0.71})
    took = {"accuracy": 0.92, "target_accuracy": 0.9, "time_to_target_s": 12.0, "start_up_s": 3.0}
    there = replace(make_target(asked), events=(best, MetricEvent(0, "target", NOW_S, 200, took)))
    (row,) = target_lines(there, width)
    assert line_width(row) <= width
    assert plain(row).startswith(" accuracy 0.9 reached after 12 s of training")
    (row,) = target_lines(replace(there, events=(best,)), width)
    assert plain(row) == " accuracy 0.9 not reached (best 0.71)"
    assert target_lines(make_target(run), width) == []


def test_a_long_name_leaves_room_for_the_job_and_its_partition() -> None:
    shown = plain(job_head(make_job(name="n" * 200), "ada", 80))
    assert len(shown) <= 80
    assert "n… " in shown
    assert "partition" in shown
