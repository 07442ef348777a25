"""Two runs compared on a narrow terminal: the verdict is read whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.comparing.speedup import Speedup
from coach.analysis.comparing.two_runs import (
    AFTER,
    BEFORE,
    BETTER,
    BOTH,
    NO_DIFFERENCE,
    NOT_COMPARABLE,
    WORSE,
    Comparison,
    FoundIn,
    Row,
)
from coach.render.text import line_width, plain
from coach.tui.render.compare import compare_lines

ROWS = (
    Row("throughput", "samples/s", 1234.5, 130.0, 1244.5, 12.0, 1.01, NO_DIFFERENCE, "× 1.00 ± 0.16"),
    Row("run time", "s", 76.0, 9.4, 77.0, 9.4, 1.0, WORSE),
    Row(
        "time per epoch", "s", None, None, 112.0, None, None, NOT_COMPARABLE, "not measured in the first run"
    ),
    Row("memory peak", "MiB", 745.0, 37.0, 688.0, 34.0, 0.92, BETTER),
    Row("to accuracy 0.85", "s", 76.0, 9.4, 77.0, 9.4, 1.0, NO_DIFFERENCE),
)


def drawn(width: int, rows: tuple[Row, ...] = ROWS, findings: tuple[FoundIn, ...] | None = None) -> list[str]:
    compared = Comparison("a", "b", (), rows, Speedup(None, None, None, None), findings)
    lines = compare_lines(compared, ("a", None, None), ("b", None, None), width)
    assert all(line_width(each) <= width for each in lines)
    return [plain(each) for each in lines]


@pytest.mark.parametrize("width", [78, 80, 100, 160])
def test_every_verdict_is_shown_whole(width: int) -> None:
    text = "\n".join(drawn(width))
    assert all(told in text for told in ("· no difference", "▲ worse", "· not comparable", "✓ better"))


def test_the_findings_of_both_runs_are_listed_with_the_run_that_has_them() -> None:
    findings = tuple(FoundIn(f"NUM00{at}", "x", where) for at, where in enumerate((BOTH, AFTER, BEFORE)))
    text = drawn(78, findings=findings)
    assert [each.strip() for each in text if " found " in each] == [
        "found in both: NUM000 x",
        "found after only: NUM001 x",
        "found before only: NUM002 x",
    ]
    assert " found in neither run: a warning or worse" in drawn(78, findings=())
    assert not any(" found " in each for each in drawn(78)), "a run was not judged"


def test_eighty_columns_show_both_values_with_their_noise() -> None:
    text = "\n".join(drawn(78))
    assert all(told in text for told in ("samples/s", "1,234", "±11%", "1 min 16 s ±12%", "to accuracy 0.85"))
    assert "…" not in text


def test_a_rate_has_its_name_where_there_is_room() -> None:
    assert "throughput samples/s" not in "\n".join(drawn(78))
    assert "throughput samples/s" in "\n".join(drawn(78, ROWS[:1]))


def test_a_ratio_that_no_row_has_takes_no_column() -> None:
    rows = tuple(replace(row, ratio=None) for row in ROWS)
    assert "RATIO" not in "\n".join(drawn(78, rows))
    assert "RATIO" in "\n".join(drawn(120, rows))


@pytest.mark.parametrize("width", [78, 120])
def test_noise_larger_than_the_value_is_written_as_a_number(width: int) -> None:
    text = "\n".join(drawn(width, (Row("loss", "", 2.67, 1.4, 7.5e-05, 0.00079, None, BETTER),)))
    assert "7.5e-5 ±7.9e-4" in text
    assert "2.67 ±52" in text
    assert "1053" not in text
