"""A fix is offered only where the target shows what the fix presupposes."""

from __future__ import annotations

import pytest

from coach.model.judging.finding import Fix
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, LogTail, Signature
from coach.rules.advice.circumstances import MAX_FIXES, NEEDS, NOT, fitting, fixes_of_wording


def target(*lines: str, file: str = "out.txt") -> TargetSnapshot:
    return TargetSnapshot(file, None, log_tails=(LogTail(file, 1, lines, 100, len(lines)),))


def hit(fix: Fix, **fields: str) -> LogHit:
    return LogHit("ENV010", "full", "out.txt", 1, "", fields, wording=Signature("", "", (), "", fixes=(fix,)))


@pytest.mark.parametrize(
    ("need", "line", "is_shown"),
    [
        ("dataloader", "This DataLoader will create 24 worker processes", True),
        ("dataloader", "step 3 loss 2.1", False),
        ("not dataloader", "step 3 loss 2.1", True),
        ("checkpoint", "Saving model checkpoint to out/checkpoint-500", True),
        ("checkpoint", "step 3 loss 2.1", False),
        ("scheduler:slurm", "srun: error: n1: task 0: Killed", True),
        ("scheduler:pbs", "=>> PBS: job killed: walltime 20 exceeded limit 10", True),
        ("scheduler:lsf", "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", True),
        ("scheduler:sge", "hard resource limit h_vmem exceeded", True),
        ("scheduler:slurm", "=>> PBS: job killed: walltime 20 exceeded limit 10", False),
        ("scheduler:unknown", "step 3 loss 2.1", True),
        ("recipe", "coach run", False),
    ],
)
def test_a_fix_is_shown_where_the_log_shows_what_it_needs(need: str, line: str, is_shown: bool) -> None:
    assert need.removeprefix(NOT) in NEEDS
    assert bool(fitting([Fix("x", needs=(need,))], target(line))) is is_shown


def test_a_log_that_slurm_named_is_slurms() -> None:
    fix = Fix("x", needs=("scheduler:slurm",))
    assert fitting([fix], target("step 1", file="/home/ada/slurm-17.out")) == (fix,)


def test_no_more_fixes_are_shown_than_are_read() -> None:
    fixes = [Fix(str(number)) for number in range(9)]
    assert fitting(fixes, target()) == tuple(fixes[:MAX_FIXES])


def test_a_value_of_the_line_stands_in_the_fix_and_is_quoted_for_a_shell() -> None:
    fix = Fix("Free port {port}; set ${port}", command="ss -ltnp | grep {port}")
    (filled,) = fixes_of_wording(hit(fix, port="29500; rm -rf ~"), target())
    assert filled.title == "Free port 29500; rm -rf ~; set ${port}"
    assert filled.command == "ss -ltnp | grep '29500; rm -rf ~'"


def test_a_fix_with_a_value_that_the_line_lacks_is_left_out() -> None:
    assert fixes_of_wording(hit(Fix("Free port {port}")), target()) == ()
