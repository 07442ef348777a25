from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from coach.config import Settings
from coach.render.text import line_width, plain
from coach.tui.render.recipes import expected_lines, lesson_parts, markdown_lines, side_by_side
from coach.workflows.launching.recipes import Page, pages


@cache
def page(name: str) -> Page:
    settings = Settings(runs_root=Path("r"), cache_dir=Path("c"), config_dir=Path("f"))
    return next(each for each in pages(settings)[0] if each.recipe.name == name)


def test_a_lesson_and_its_expected_results_are_separate_texts() -> None:
    taught, expected = lesson_parts(page("amp").lesson)
    assert "autocast" in taught
    assert "The same loss curve" not in taught
    assert "The same loss curve" in expected
    assert "No step waits for these numbers" in expected
    assert "is common advice" in taught


@pytest.mark.parametrize("width", [104, 164])
def test_lesson_diff_and_expected_results_are_shown_side_by_side(width: int) -> None:
    rows = side_by_side(page("amp"), width)
    assert max(map(line_width, rows)) <= width
    shown = "\n".join(map(plain, rows))
    for part in ("What it teaches", "what amp changes from baseline", "what amp is to look like", "0.02"):
        assert part in shown
    first = next(row for row in map(plain, rows) if "what amp changes from baseline" in row)
    assert not first.startswith(" what amp"), "the diff stands beside the lesson"


def test_on_a_narrow_terminal_the_expected_results_are_a_page_of_their_own() -> None:
    rows = expected_lines(page("amp"), 48)
    assert max(map(line_width, rows)) <= 48
    assert "The same loss curve" in "\n".join(map(plain, rows))


def test_a_table_of_a_lesson_keeps_its_rows_and_columns() -> None:
    text = "Measured:\n\n| way | sent |\n|---|--:|\n| `ring` | 1.50 |\n| 日本 | **3** |\nThe end."
    shown = [plain(row) for row in markdown_lines(text, 40)]
    assert shown == [" Measured:", "", " way   sent", " ring  1.50", " 日本  3", " The end."]


def test_each_step_of_a_numbered_list_begins_a_line() -> None:
    text = "It\n1. splits the\n   batch,\n2. copies the model."
    assert [plain(row) for row in markdown_lines(text, 40)] == [
        " It",
        " 1. splits the batch,",
        " 2. copies the model.",
    ]
