"""Columns fit the terminal; rows are found by filtering."""

from __future__ import annotations

import pytest

from coach.render.text import line_width, plain
from coach.tui.render.cluster import NODE_COLUMNS
from coach.tui.render.queue import JOB_COLUMNS
from coach.tui.render.runs import RUN_COLUMNS
from coach.tui.render.table import (
    Cell,
    Column,
    LazyRows,
    ListRows,
    Row,
    RowLines,
    fit_columns,
    header_line,
    matching,
    natural,
    row_line,
)


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
    rows = ListRows([Row("1", (), "ada ddp running"), Row("2", (), "bob ddp pending")])
    assert list(matching(rows, "DDP pend").keys) == ["2"]
    assert matching(rows, "  ") is rows


def test_only_the_visible_ones_of_fifty_thousand_jobs_become_lines() -> None:
    made: list[int] = []

    def render(number: int) -> Row:
        made.append(number)
        return Row(str(number), (Cell(f"job {number}"),))

    numbers = range(50_000)
    rows = LazyRows([str(number) for number in numbers], numbers, render)
    lines = RowLines(rows, fit_columns((Column("name", "NAME", 9),), 20))
    assert len(lines) == 50_000
    assert "job 49999" in plain(lines[49_999])
    assert [plain(row).strip() for row in lines[7:9]] == ["job 7", "job 8"]
    assert lines[7] == lines[7]
    assert made == [49_999, 7, 8]
    with pytest.raises(IndexError):
        lines[50_000]


def test_node2_stands_before_node10() -> None:
    assert sorted(["node10", "node2", "a"], key=natural) == ["a", "node2", "node10"]


def test_chosen_columns_stand_in_that_order_and_the_last_go_first_where_there_is_no_room() -> None:
    wide = fit_columns(JOB_COLUMNS, 120, ("own", "account", "job_id", "cpus"))
    assert [column.name for _, column, _ in wide.columns] == ["own", "account", "job_id", "cpus"]
    assert [JOB_COLUMNS[index].name for index, _, _ in wide.columns] == ["own", "account", "job_id", "cpus"]
    narrow = fit_columns(JOB_COLUMNS, 20, ("own", "account", "job_id", "cpus"))
    assert [column.name for _, column, _ in narrow.columns] == ["own", "account"]
    assert "account" not in {column.name for _, column, _ in fit_columns(JOB_COLUMNS, 500).columns}


def test_the_sorted_column_has_a_sign_also_where_its_title_fills_it() -> None:
    layout = fit_columns(JOB_COLUMNS, 80)
    assert "GPU↓" in plain(header_line(layout, ("gpus", True)))
    assert "USER↑" in plain(header_line(layout, ("user", False)))
    assert line_width(header_line(layout, ("gpus", True))) == line_width(header_line(layout))
