"""A group of runs as lines, on the screen and as text, with the time to reach an accuracy."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from coach.analysis.comparing.ladder_table import ladder_table
from coach.analysis.comparing.speedup import Measured
from coach.analysis.comparing.steady_state import Estimate
from coach.analysis.comparing.sweep_table import Group, Member, loss_words, table
from coach.analysis.comparing.time_to_target import TimeToTarget
from coach.cli.compare import print_group
from coach.lookback.history import History
from coach.model.judging.finding import Finding, Severity, Subject
from coach.model.launching.ladder import RUNG, Ladder, Rung
from coach.model.launching.launch import SweepPoint
from coach.model.training.metrics import Step
from coach.render.ladder import ladder_lines
from coach.render.text import line_width, plain
from coach.sources.runs.run_files import parse_run
from coach.tui.render.group import group_lines

NOTHING = Measured(None, None, None, None, None)
REACHED = TimeToTarget(0.9, True, False, 120, 0.92, 0.92, 12.0, 15.0, 4.0, 40)
NOT_REACHED = TimeToTarget(0.9, False, False, None, None, 0.71, None, None, None, None)


def group(*targets: TimeToTarget | None) -> Group:
    members = [
        Member(f"run{number}", number, "COMPLETED", NOTHING, None, {}, target)
        for number, target in enumerate(targets)
    ]
    return Group("group", "baseline", "lr", table("lr", members))


def test_a_group_with_a_target_names_the_runs_that_reached_it() -> None:
    told = "\n".join(map(plain, group_lines(group(REACHED, NOT_REACHED), 200)))
    assert "0.9 in 12" in told
    assert "0.9 not reached (best 0.71)" in told
    narrow = group_lines(group(REACHED), 110)
    assert "0.9 in 12" in "\n".join(map(plain, narrow))
    assert "accuracy" not in "\n".join(map(plain, group_lines(group(None), 200)))


def test_the_table_has_its_column_where_a_target_was_set(capsys: pytest.CaptureFixture[str]) -> None:
    print_group(group(REACHED, NOT_REACHED, None))
    told = capsys.readouterr().out
    assert "TO ACCURACY" in told
    assert "0.9: 12 s, 120 steps" in told
    assert "0.9: not reached (best 0.71)" in told
    print_group(group(None, None))
    assert "TO ACCURACY" not in capsys.readouterr().out


def test_a_sweep_shows_its_losses_first_and_no_column_without_a_value() -> None:
    """Of runs whose speed was not measured, the table has the losses and no speeds."""
    losses = ({"eval_loss": 0.3348, "loss": 0.31}, {"eval_loss": 4.287}, {})
    members = [
        Member(f"run{number}", value, "COMPLETED", NOTHING, None, metrics)
        for number, (value, metrics) in enumerate(zip((0.01, 10.0, 0.1), losses, strict=True))
    ]
    rows = [plain(row) for row in group_lines(Group("g", "train", "lr", table("lr", members)), 79)]
    assert rows[2].split() == ["LR", "EVAL", "LOSS", "LOSS", "RESULT"]
    assert [row.split() for row in rows[3:6]] == [
        ["0.01", "0.3348", "0.31", "COMPLETED"],
        ["10.0", "4.287", "–", "COMPLETED"],
        ["0.1", "–", "–", "COMPLETED"],
    ]
    assert "samples/s" not in "".join(rows)


def test_the_losses_of_a_sweep_stay_where_its_speeds_have_no_room() -> None:
    estimate = Estimate(1250.0, 12.0, 30)
    measured = Measured(1, estimate, estimate, estimate, None)
    members = [Member("run", 0.01, "COMPLETED", measured, None, {"eval_accuracy": 0.84, "eval_loss": 0.3})]
    told = Group("g", "train", "lr", table("lr", members))
    assert "SAMPLES/S" in plain(group_lines(told, 160)[2])
    narrow = plain(group_lines(told, 79)[2])
    assert narrow.split()[:5] == ["LR", "EVAL", "ACC", "EVAL", "LOSS"]
    assert all(line_width(row) <= 79 for row in group_lines(told, 79))


def test_speeds_have_their_noise_and_too_few_steps_give_no_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    rates = Estimate(100.0, 4.0, 54), Estimate(170.0, 5.0, 54), Estimate(23.0, None, 1)
    sides = [
        Measured(ranks, rate, None, None, None, 64) for ranks, rate in zip((1, 2, 4), rates, strict=True)
    ]
    members = [
        Member(f"run{each.world_size}", each.world_size or 0, "COMPLETED", each, None) for each in sides
    ]
    scale = Group("group", "scale", "world_size", table("world_size", members))
    print_group(scale)
    out = capsys.readouterr().out
    assert [row.split()[4:13] for row in out.splitlines()[3:4]] == [
        ["5", "54", "1.70", "±", "0.08", "85", "±", "4", "%"]
    ]
    assert "1  too few steps           –" in out
    assert "4: too few steps (1 steady, 16 are needed)" in out
    assert scale.scaling is not None
    assert scale.scaling.num_sizes == 2
    shown = "\n".join(map(plain, group_lines(scale, 79)))
    assert "1.70 ± 0.08    85 ± 4 %" in shown
    assert "4: too few steps (1 steady, 16 are needed)" in shown


def test_a_loss_that_became_infinite_is_named_with_its_step_and_the_finding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    losses = {3: 2.0, 4: math.inf, 5: 1.0, 6: math.inf, 7: math.inf}
    history = History()
    history.add_steps([Step(0, step, None, loss=loss) for step, loss in losses.items()])
    finding = Finding(
        *("NUM001", "loss-not-finite", "nan_loss", Severity.CRITICAL, 1.0, True, None, Subject()),
        *("", (), (), None),
    )
    diverged = Member("b", 9.0, "COMPLETED", NOTHING, finding, {}, None, loss_words(history))
    members = [Member("a", 0.1, "COMPLETED", NOTHING, None, {"loss": 0.5}), diverged]
    table_of = Group("group", "baseline", "lr", table("lr", members))
    print_group(table_of)
    row = capsys.readouterr().out.splitlines()[3]
    assert "inf from step 6" in row
    assert "COMPLETED, NUM001" in row
    shown = plain(group_lines(table_of, 100)[4])
    assert shown.split()[:2] == ["9.0", "inf"]
    assert "COMPLETED, NUM001" in shown


@pytest.mark.parametrize("width", [79, 119])
def test_a_ladder_shows_its_rungs_and_below_each_verdict_in_whole(width: int) -> None:
    rungs = (
        Rung("baseline", "baseline", samples_per_s=(1000, 1200), source="slides, demo 1"),
        Rung("ddp", "ddp", ranks=8, why_not="asks 8 GPUs, partition gpu has 2 GPUs per node \x1b[31m"),
    )
    measured = Measured(1, Estimate(1100.0, 12.0, 54), None, None, Estimate(850.0, None, 1))
    run = replace(parse_run({}, "/runs/one"), sweep=SweepPoint("one", RUNG, "baseline", 0, 1))
    member = Member("one", "baseline", "COMPLETED", measured, None)
    rows = ladder_table(Ladder("demos", "", rungs), [(run, member)])
    shown = [plain(row) for row in ladder_lines(rows, "The demos", width)]
    assert all(len(row) <= width for row in shown)
    assert shown[2].split()[:3] == ["RUNG", "RANKS", "SAMPLES/S"]
    assert "1,100 ± 12 (54)" in shown[3]
    text = " ".join(" ".join(shown).split())
    assert "baseline reached (slides, demo 1)" in text
    assert "ddp cannot be tested here: asks 8 GPUs, partition gpu has 2 GPUs per node" in text
    assert "\x1b" not in text


def test_a_ladder_on_a_screen_narrower_than_a_name_keeps_the_names() -> None:
    name = "a_rung_with_a_name_as_long_as_one"
    rows = ladder_table(Ladder("demos", "", (Rung(name, "baseline"),)), [])
    shown = [plain(row) for row in ladder_lines(rows, "The demos", 30)]
    assert shown[3].strip() == name
