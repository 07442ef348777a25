"""A group of runs as lines, on the screen and as text, with the time to reach an accuracy."""

from __future__ import annotations

import pytest

from coach.analysis.comparing.sweep_table import Group, Member, table
from coach.analysis.comparing.time_to_target import TimeToTarget
from coach.analysis.comparing.two_runs import Measured
from coach.cli.compare import print_group
from coach.tui.render.group import group_lines
from coach.tui.render.text import plain

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
