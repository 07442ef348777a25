"""The Run screen's parts, each at both widths."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.jobs.progress import Pace, Progress
from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Fix, Verdict
from coach.model.training.metrics import MetricEvent, Step
from coach.model.training.telemetry import SensorGap
from coach.render.text import Line, line_width, plain
from coach.tui.render.finding import finding_detail, findings_lines
from coach.tui.render.job import job_head
from coach.tui.render.nodes import node_lines, rank_lines
from coach.tui.render.progress import progress_lines
from coach.tui.render.run import (
    head_line,
    pace_lines,
    parameters_lines,
    parent_lines,
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
        *pace_lines(history.curve, None, width),
        *progress_lines(Progress(200, 5000, 2000.0, pace=Pace(2.4, 120)), 600.0, 1e6, width),
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


def foreign_history(num_steps: int, slows: float = 1.0, **more: float) -> History:
    """The steps of a foreign job, as its lines tell them."""
    history = History()
    for step in range(num_steps):
        time_s = 0.5 * (slows if step > num_steps / 2 else 1.0)
        told = {
            "data_time_s": 0.2 * time_s / 0.5,
            "step_time_s": time_s,
            "tokens_per_s": 20_000 / time_s,
        } | more
        history.add_steps([Step(0, step, None, loss=2.3 - step / 1000, **told)])
    return history


def test_the_pace_of_a_foreign_job_names_each_quantity_that_its_lines_tell() -> None:
    assert text(pace_lines(foreign_history(400).curve, None, 80)).splitlines() == [
        " step time 500 ms · waits for data 40% of it · 40,000 tokens/s, steady",
        " loss 1.9 at step 399, falls since step 0",
    ]
    slower = text(pace_lines(foreign_history(400, slows=1.5).curve, None, 80))
    assert "26,667 tokens/s, 1.5 times slower than at first" in slower
    samples = foreign_history(400, samples_per_s=64.0)
    assert "64 samples/s, steady" in text(pace_lines(samples.curve, None, 80))


def test_the_pace_of_few_steps_is_too_early_for_a_trend_and_warns_of_nothing() -> None:
    history = foreign_history(17, data_time_s=0.43)
    rows = pace_lines(history.curve, None, 80)
    assert text(rows).splitlines() == [
        " step time 500 ms · waits for data 86% of it · 40,000 tokens/s",
        " loss 2.28 at step 16, too early for a trend",
    ]
    assert not [span for row in rows for span in row if span.tone == "warning"]


def test_lines_without_times_take_their_pace_from_the_progress_and_say_dashes() -> None:
    history = History()
    history.add_steps(Step(0, step, None, loss=2.3 - step / 100) for step in range(100))
    pace = Pace(1.99, 99, is_since_start=True)
    shown = text(pace_lines(history.curve, pace, 80))
    assert shown.startswith(" step time – · waits for data – · 1.99 steps/s since its start")
    shown = text(progress_lines(Progress(99, 5000, 2460.0, pace=pace), 51.0, 1800.0, 80))
    assert "step 99 of 5,000, 41:00 left by its 99 steps since its start" in shown
    assert "will not finish" not in shown


def test_a_time_left_names_the_steps_that_it_was_measured_by() -> None:
    known = progress_lines(Progress(120, 5000, 2440.0, pace=Pace(2.0, 100)), 60.0, 7200.0, 120)
    assert text(known).endswith("of 2:00:00 · step 120 of 5,000, 40:40 left by its last 100 steps")
    assert text(progress_lines(Progress(120, None, None), 60.0, 7200.0, 80)).endswith("· step 120, – left")
