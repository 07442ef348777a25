from __future__ import annotations

from coach.model.launching.launch import LaunchRequest
from coach.render.text import plain
from coach.tui.render.new_launch import LAUNCH_COLUMNS, launch_rows, shown_columns
from coach.tui.render.table import fit_columns, row_line
from coach.workflows.launching.launchables import Launchable, Origin

TITLE = "Pipeline parallel: stages one by one"


def test_where_nothing_was_launched_yet_a_title_is_read_whole() -> None:
    recipe = Launchable(Origin.RECIPE, "pipeline_parallel", TITLE, LaunchRequest("pipeline_parallel"))
    (row,) = launch_rows([recipe], 0.0)
    layout = fit_columns(LAUNCH_COLUMNS, 80, shown_columns([recipe]))
    assert TITLE in plain(row_line(row, layout))


def test_a_command_that_was_launched_before_shows_when() -> None:
    command = Launchable(Origin.RECENT, "./train.sh", "again", LaunchRequest("./train.sh"), 1000.0)
    (row,) = launch_rows([command], 1000.0 + 7200)
    layout = fit_columns(LAUNCH_COLUMNS, 80, shown_columns([command]))
    assert "2 h ago" in plain(row_line(row, layout))
