"""A program that crashed in a job that COMPLETED, and the errors of healthy jobs beside it."""

from __future__ import annotations

import pytest

from coach.lookback.history import History
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.test_unknown_failure import ended, found

STEPS = [f"step {step} loss {1 / (1 + step):.3f}" for step in range(10)]
CRASH = [
    "Traceback (most recent call last):",
    '  File "/home/ada/train.py", line 3, in <module>',
    "    x[3]",
    "IndexError: list index out of range",
]
KILLED = "srun: error: node1: task 0: Killed"


@pytest.mark.parametrize(
    "lines",
    [
        [*STEPS, *CRASH],
        [*STEPS, *CRASH, "all done", "Thu Nov 26 12:00:00 UTC 2026"],
        [*STEPS, *CRASH, *STEPS, *CRASH, "all done"],
        [*STEPS, *CRASH, "Training finished"],
        [*STEPS, *CRASH, "Batch job completed successfully", "11/26/2026", "node4", "training done", "bye"],
        [*STEPS, "Training finished", *CRASH],
        [
            '  File "/home/ada/train.py", line 4',
            "    for x in range(10)",
            "    ^",
            "SyntaxError: expected ':'",
        ],
    ],
    ids=["a pipe", "an echo", "a loop", "a good end", "good ends", "after it", "a syntax error"],
)
def test_a_crash_behind_exit_status_0_is_a_warning(lines: list[str]) -> None:
    (finding,) = found(ended("COMPLETED", *lines, exit_code=0))
    assert (finding.rule, finding.severity.word) == ("COD001", "warning")
    assert "exit status 0 hides" in finding.summary
    assert "set -o pipefail" in finding.fixes[-1].title


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        ("python3: can't open file '/home/ada/step1.py': [Errno 2] No such file or directory", "DAT011"),
        ("train.py: error: unrecognized arguments: --epoch", "COD001"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "MEM001"),
    ],
)
def test_a_program_that_did_not_start_or_had_no_memory_is_hidden_too(error: str, rule: str) -> None:
    lines = (*CRASH[:3], error) if rule == "MEM001" else (error,)
    for end in ("finished", "Training finished"):
        (finding,) = found(ended("COMPLETED", *lines, end, exit_code=0))
        assert (finding.rule, finding.severity.word) == (rule, "warning")
        assert "exit status 0 hides" in finding.summary


@pytest.mark.parametrize(
    "lines",
    [
        [*STEPS, *CRASH, "cache not found, rebuilding", *STEPS],
        [*STEPS, *CRASH, "epoch 3: accuracy 0.8"],
        [*STEPS, *CRASH, "Training finished. Best accuracy 0.9"],
        [*STEPS, *CRASH, "Retrying in 5 s"],
        [*STEPS, *CRASH, *(f"file {name} is written" for name in "abcd")],
        [*STEPS, "Exception ignored in: <function Pool.__del__ at 0x7f>", *CRASH],
        [*STEPS, "Exception in thread Thread-3:", *CRASH],
    ],
    ids=["losses", "a counter", "an evaluation", "a retry", "more output", "ignored", "a thread"],
)
def test_an_error_that_a_completed_program_survived_is_no_warning(lines: list[str]) -> None:
    assert not found(ended("COMPLETED", *lines, exit_code=0))


def test_the_rank_that_raised_explains_the_lost_connections_of_a_completed_job() -> None:
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.1.1]:31112"
    lines = [
        *(f"[rank1]: {line}" for line in CRASH),
        *(f"[rank0]: {line}" for line in (*CRASH[:3], lost)),
        "job finished",
    ]
    snapshot = ended("COMPLETED", *lines, exit_code=0)
    findings = Engine(build()).diagnose(snapshot, History()).findings
    assert [(each.rule, each.severity.word, each.consequence_of) for each in findings] == [
        ("COD001", "warning", None),
        ("DST020", "warning", "COD001"),
    ]


@pytest.mark.parametrize("lines", [[KILLED, "srun: Force Terminated StepId=17.0"], [KILLED]])
def test_a_task_that_was_killed_in_a_failed_job_is_no_cancellation(lines: list[str]) -> None:
    (finding,) = found(ended("FAILED", *STEPS, *lines, exit_code=137))
    assert finding.rule == "MEM008"
    assert "nothing here measured it" in finding.summary


def test_a_step_that_scancel_ended_is_still_a_cancellation() -> None:
    told = "slurmstepd: error: *** STEP 17.0 ON node1 CANCELLED ***"
    lines = [*STEPS, told, *(f"waiting {second} s" for second in range(9)), KILLED]
    assert found(ended("FAILED", *lines, exit_code=137))[0].rule == "JOB005"
