"""`d` shows on one screen the working parts, the broken parts, and the remedies."""

from __future__ import annotations

import pytest

from coach.model.errors import UserError
from coach.model.judging.doctor_report import Check, CheckState, Report
from coach.render.text import line_width, plain
from coach.tui.render.doctor import report_lines
from tests.tui.driving import opened
from tests.tui.fake_ports import FakePorts, FakeQuestions

REPORT = Report(
    (
        Check("slurm", "controller", CheckState.OK, "cluster tiger answers"),
        Check("roots", "runs", CheckState.WRONG, "/scratch/ada", "it is full \x1b[31m", "make room"),
        Check("terminal", "size", CheckState.UNKNOWN, None, is_needed=False),
    ),
    0.2,
)


def test_every_check_has_a_sign_a_result_a_reason_and_a_remedy() -> None:
    lines = [plain(row) for row in report_lines(REPORT, 80)]
    assert lines[0].strip() == "one thing does not work here: roots (runs)"
    assert "   ✓ controller cluster tiger answers" in lines
    wrong = lines.index("   ✖ runs       /scratch/ada")
    assert "it is full" in lines[wrong + 1]
    assert "\x1b" not in lines[wrong + 1]
    assert lines[wrong + 2].strip() == "→ make room"
    assert "   ? size       –" in lines


@pytest.mark.parametrize("width", [40, 80, 200])
def test_nothing_is_wider_than_the_screen(width: int) -> None:
    long = Check("launch", "w" * 40, CheckState.WARNING, "v " * 100, "b " * 100, "t " * 100)
    rows = report_lines(Report((long,), 0.0), width)
    assert max(line_width(row) for row in rows) <= max(width, 60)


async def test_the_report_is_read_and_read_again() -> None:
    ports = FakePorts(questions=FakeQuestions(report=REPORT))
    async with opened(ports=ports) as driver:
        await driver.press("d")
        await driver.reaches("doctor")
        await driver.sees("one thing does not work here")
        ports.questions.report = Report(REPORT.checks[:1], 0.2)
        await driver.press("ctrl+r")
        await driver.sees("all well: a launch works here")
        await driver.press("escape")
        await driver.reaches("cluster")


async def test_an_examination_that_fails_says_so() -> None:
    class Failing(FakeQuestions):
        def examine(self) -> Report:
            raise UserError("backend 'x': expected slurm or local")

    async with opened(ports=FakePorts(questions=Failing())) as driver:
        await driver.press("d")
        await driver.sees("backend 'x': expected slurm or local")
