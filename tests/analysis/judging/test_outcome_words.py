"""How a run ended, in the words of every screen and command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.judging.outcome_words import earlier_runs_lines, outcome_text, resume_command
from coach.model.judging.outcome import EarlierRun, End, Outcome, RankEnd


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (None, ""),
        (Outcome(End.RUNNING), ""),
        (Outcome(End.COMPLETED, can_resume=True), ""),
        (Outcome(End.UNKNOWN), ""),
        (Outcome(End.EXCEPTION, "ValueError"), "it ended with ValueError"),
        (Outcome(End.EXCEPTION), "it ended with an exception"),
        (Outcome(End.SIGNAL, "9"), "it was ended by SIGKILL"),
        (Outcome(End.SIGNAL, "99"), "it was ended by signal 99"),
        (Outcome(End.STATUS, "3"), "it ended with exit status 3"),
        (Outcome(End.SLURM, "TIMEOUT"), "Slurm ended it at its time limit"),
        (Outcome(End.SLURM, "BOOT_FAIL"), "Slurm ended it: BOOT_FAIL"),
        (
            Outcome(End.SIGNAL, "9", first=RankEnd(3, "node2", -9), lost_steps=1, can_resume=True),
            "it was ended by SIGKILL, rank 3 first, on node2; "
            "1 step is lost since the last complete checkpoint; it can resume",
        ),
        (Outcome(End.STATUS, "1", lost_steps=0), "it ended with exit status 1; no step is lost"),
        (
            Outcome(End.EXCEPTION, "Hostile\x1b[31mError", can_resume=False),
            "it ended with Hostile␛[31mError; it cannot resume: it has no complete checkpoint",
        ),
    ],
)
def test_the_outcome_names_the_cause_of_the_end_and_the_lost_work(outcome: Outcome | None, text: str) -> None:
    assert outcome_text(outcome) == text


def test_a_run_that_can_resume_is_told_how() -> None:
    cancelled = Outcome(End.SLURM, "CANCELLED", can_resume=True)
    assert outcome_text(cancelled, "press >") == "it was cancelled; it can resume: press >"
    assert resume_command("17") == "`coach resume 17`"
    assert resume_command("17_3") == "`coach resume 17_3`"
    assert resume_command("20261121-142233-ddp-4f2a") == "`coach resume 20261121-142233-ddp-4f2a`"
    assert resume_command("/home/ada/train.log") == resume_command("17; rm x") == ""
    lost = replace(cancelled, can_resume=False)
    assert outcome_text(lost, "press >").endswith("it cannot resume: it has no complete checkpoint")


def test_a_line_reports_the_ends_of_the_runs_above_it() -> None:
    first, second = EarlierRun("a.log", 1, 9, "KeyError"), EarlierRun("a.log", 10, 19, "TypeError")
    assert [*earlier_runs_lines(None), *earlier_runs_lines(Outcome(End.UNKNOWN))] == []
    assert [*earlier_runs_lines(Outcome(End.UNKNOWN, earlier=(first,)))] == [
        "an earlier run in the same log, not checked: it ended at a.log:9: KeyError"
    ]
    assert [*earlier_runs_lines(Outcome(End.UNKNOWN, earlier=(first, second)))] == [
        "2 earlier runs in the same log, not checked: the last ended at a.log:19: TypeError"
    ]
