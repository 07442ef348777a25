"""Columns fit the terminal; rows are found by filtering."""

from __future__ import annotations

import pytest

from coach.tui.render.cluster import NODE_COLUMNS
from coach.tui.render.queue import JOB_COLUMNS
from coach.tui.render.runs import RUN_COLUMNS
from coach.tui.render.table import (
    Cell,
    Column,
    Row,
    fit_columns,
    header_line,
    limited,
    matching,
    natural,
    row_line,
)
from coach.tui.render.text import line_width


@pytest.mark.parametrize("columns", [NODE_COLUMNS, JOB_COLUMNS, RUN_COLUMNS])
@pytest.mark.parametrize("width", [40, 80, 100, 120, 200])
def test_a_table_is_never_wider_than_the_terminal(columns: tuple[Column, ...], width: int) -> None:
    layout = fit_columns(columns, width)
    row = Row("k", tuple(Cell("x" * 99) for _ in columns))
    assert line_width(row_line(row, layout)) <= width
    assert line_width(header_line(layout)) <= width


def test_at_80_columns_the_essentials_are_left() -> None:
    names = {column.name for _, column, _ in fit_columns(JOB_COLUMNS, 80).columns}
    assert {"own", "job_id", "name", "user", "state", "reason", "gpus", "left"} <= names
    names = {column.name for _, column, _ in fit_columns(RUN_COLUMNS, 80).columns}
    assert {"run", "state", "finding"} <= names


def test_a_filter_needs_every_word() -> None:
    rows = [Row("1", (), "ada ddp running"), Row("2", (), "bob ddp pending")]
    assert [row.key for row in matching(rows, "DDP pend")] == ["2"]
    assert len(matching(rows, "  ")) == 2


def test_more_rows_than_can_be_shown_are_counted() -> None:
    rows = [Row(str(i), ()) for i in range(12)]
    shown, note = limited(rows, 10)
    assert len(shown) == 10
    assert note == "…and 2 more, / filters"
    assert limited(rows, 12)[1] == ""


def test_node2_stands_before_node10() -> None:
    assert sorted(["node10", "node2", "a"], key=natural) == ["a", "node2", "node10"]
