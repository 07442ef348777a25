"""How a run ended is judged once, and put on its diagnosis."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.lookback.history import History
from coach.model.judging.outcome import End, Outcome
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Checkpoint, RankExit, RunExit
from coach.rules.engine import Engine
from tests.rules.examples import diagnose_whole, history, run, steps

RAISED = (
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 3, in main\n    step()\n'
    "ValueError: x\n"
)
FAILURE = (
    "Root Cause (first observed failure):\n[0]:\n  host      : node2\n  rank      : 1 (local_rank: 1)\n"
    "  exitcode  : {code} (pid: 17)\n"
)


def outcome_of(snapshot: TargetSnapshot, series: History | None = None) -> Outcome:
    outcome = Engine(()).diagnose(snapshot, series or History()).outcome
    assert outcome is not None
    return outcome


def logged(text: str) -> Outcome:
    outcome = diagnose_whole(text).outcome
    assert outcome is not None
    return outcome


def job(state: str, exit_code: int | None = None, reason: str | None = None) -> Job:
    times = (3, 0, 600, 1.0, 2.0, 5.0)
    return Job("17", "mine", "ada", state, reason, "gpu", "node4", 1, 2, 0, *times, exit_code=exit_code)


@pytest.mark.parametrize(
    ("state", "exit_code", "reason", "end", "because"),
    [
        ("RUNNING", None, None, End.RUNNING, None),
        ("COMPLETED", 0, None, End.COMPLETED, None),
        ("TIMEOUT", 0, "TimeLimit", End.SLURM, "TIMEOUT"),
        ("FAILED", 137, None, End.SIGNAL, "9"),
        ("FAILED", None, "RaisedSignal:11(Segmentation_fault)", End.SIGNAL, "11"),
        ("FAILED", 3, None, End.STATUS, "3"),
        ("FAILED", None, None, End.UNKNOWN, None),
    ],
)
def test_a_job_ends_as_slurm_says(
    state: str, exit_code: int | None, reason: str | None, end: End, because: str | None
) -> None:
    outcome = outcome_of(TargetSnapshot("17", 5.0, job=job(state, exit_code, reason)))
    assert (outcome.end, outcome.reason) == (end, because)


@pytest.mark.parametrize(
    ("text", "end", "because"),
    [
        (RAISED, End.EXCEPTION, "ValueError"),
        (RAISED + FAILURE.format(code=-9), End.SIGNAL, "9"),
        (RAISED + FAILURE.format(code=3), End.STATUS, "3"),
        ("Training finished\n", End.COMPLETED, None),
        ("step 1\n", End.UNKNOWN, None),
    ],
)
def test_the_end_of_a_log_without_a_job_is_read_from_its_error_blocks(
    text: str, end: End, because: str | None
) -> None:
    assert (logged(text).end, logged(text).reason) == (end, because)


def test_the_rank_that_ended_first_is_no_bystander() -> None:
    first = logged("[rank0]: " + RAISED.replace("\n", "\n[rank0]: ") + "\n" + FAILURE.format(code=-9)).first
    assert first is not None
    assert (first.rank, first.node, first.exit_code) == (1, "node2", -9)
    ranks = (RankExit(0, 1, None, "lost", True), RankExit(1, None, 9, None, False))
    snapshot = TargetSnapshot("r", 5.0, exit=RunExit("FAILED", 1, 5.0, ranks))
    first = outcome_of(snapshot).first
    assert first is not None
    assert (first.rank, first.exit_code) == (1, -9)


def test_an_error_counts_as_survived_if_the_program_went_on() -> None:
    text = RAISED + "".join(f"2026-11-21 03:00:01 INFO worker: file {i}\n" for i in range(20))
    assert [block.type for block in logged(text).survived] == ["ValueError"]
    assert logged(text).end is End.UNKNOWN
    assert logged(RAISED).survived == ()


def test_the_work_since_the_last_checkpoint_is_lost() -> None:
    saved = Checkpoint("/c/step-40", 40, 1004.0)
    series = history(steps([1.0] * 100))
    newest = series.steps(0)[-1]
    snapshot = TargetSnapshot("r", None, run=run({"checkpoint_every": 50}), checkpoints=(saved,))
    outcome = outcome_of(snapshot, series)
    assert (outcome.lost_steps, outcome.can_resume) == (newest.step - 40, True)
    assert newest.time_s is not None
    assert outcome.lost_s == newest.time_s - 1004.0
    none = outcome_of(replace(snapshot, checkpoints=()), series)
    assert (none.lost_steps, none.lost_s, none.can_resume) == (None, None, False)
    assert outcome_of(TargetSnapshot("log", None)).can_resume is None


def test_it_is_unknown_where_an_own_program_saves_its_checkpoints() -> None:
    launch = {"own": {"kind": "script", "words": ["train.py"], "directory": "/home/user"}}
    own = TargetSnapshot("r", None, run=run({"checkpoint_every": 50}, launch=launch))
    assert outcome_of(own).can_resume is None
    assert outcome_of(replace(own, checkpoints=(Checkpoint("/c/step-40", 40, 1004.0),))).can_resume
