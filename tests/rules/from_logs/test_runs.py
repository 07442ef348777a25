"""A log with several runs: the first line of the last run, and lines that do not start a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coach.lookback.history import History
from coach.model.judging.finding import Diagnosis, Severity
from coach.model.judging.outcome import EarlierRun
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.rules.engine import Engine
from coach.rules.registry import build
from tests.rules.examples import diagnose_whole, scan, tail_of

RAISED = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n'
OOM = RAISED + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
MISSING = RAISED + "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.csv'\n"
CAUGHT = OOM.replace("<module>", "step")
STEPS = "".join(f"step {number} loss {3 - number / 10}\n" for number in range(1, 12))
HEADER = "srun: job {} queued and waiting for resources\n"
BANNER = "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n"
CANCELLED = "slurmstepd: error: *** JOB 17 ON node1 CANCELLED AT 2026-11-21T03:49:46 DUE TO {} ***\n"


def earlier(diagnosis: Diagnosis) -> tuple[EarlierRun, ...]:
    assert diagnosis.outcome is not None
    return diagnosis.outcome.earlier


def causes(diagnosis: Diagnosis) -> list[str]:
    return [each.cause for each in diagnosis.findings if each.severity >= Severity.WARNING]


@pytest.mark.parametrize(
    ("start", "again"),
    [
        (HEADER.format(17), HEADER.format(18)),
        ("", "nohup: ignoring input\n"),
        (BANNER, BANNER),
        ("SLURM_JOB_ID=17\n", "SLURM_JOB_ID=18\n"),
        ("+ python train.py --lr 1\n", "+ python train.py --lr 2\n"),
        (
            "wandb: Tracking run with wandb version 0.19.6\n",
            "wandb: Tracking run with wandb version 0.19.6\n",
        ),
        ("Training of the small model begins\n", "Training of the small model begins\n"),
    ],
)
def test_the_last_of_two_runs_is_judged_and_a_line_says_how_the_first_ended(start: str, again: str) -> None:
    first = start + STEPS + OOM
    found = diagnose_whole(first + again + STEPS + MISSING)
    assert causes(found) == ["file_not_found"]
    num_lines = first.count("\n")
    assert earlier(found) == (EarlierRun("train.log", 1, num_lines, "torch.cuda.OutOfMemoryError"),)
    assert causes(diagnose_whole(first)) == ["cuda_oom"]


def test_a_run_that_goes_on_behind_failed_ones_is_healthy() -> None:
    found = diagnose_whole((HEADER.format(17) + STEPS + OOM) * 3 + HEADER.format(20) + STEPS)
    assert (causes(found), len(earlier(found))) == ([], 3)


REPORT = "Sender: LSF System\nTerminated at Mon Dec  1 12:41:46\nThe output (if any) {}:\n"


@pytest.mark.parametrize("log", [REPORT.format("follows") + "{}", "{}" + REPORT.format("is above")])
def test_lsf_s_report_stands_above_a_job_s_output_or_below_it(log: str) -> None:
    found = diagnose_whole(log.format(STEPS + OOM) + log.format(STEPS + MISSING))
    assert (causes(found), len(earlier(found))) == (["file_not_found"], 1)


@pytest.mark.parametrize(
    "log",
    [
        # Counters start again: epochs, stages, an elastic restart.
        STEPS * 3 + OOM,
        BANNER + STEPS + CAUGHT + STEPS + OOM,
        # A start without an end above it: another stage of the same script.
        BANNER + STEPS + "Training completed\n" + BANNER + STEPS + OOM,
        "+ python prepare.py\ndone\n+ python train.py\n" + STEPS + OOM,
        # The last words of a dying program repeat one of its first lines.
        "Training of the small model begins\n" + STEPS + OOM + "Training of the small model begins\n",
        # A header that names the same job twice.
        "SLURM_JOB_ID=17\n" + STEPS + "SLURM_JOB_ID=17\n" + OOM,
        # A header or a script's last line that names another job.
        "Job ID: 17\nArray job ID: 16\n" + STEPS + OOM,
        "SLURM_JOB_ID=17\n" + STEPS + OOM + "Next Slurm job id: 18\n",
    ],
)
def test_one_run_stays_one(log: str) -> None:
    found = diagnose_whole(log)
    assert (causes(found)[:1], earlier(found)) == (["cuda_oom"], ())


def test_a_job_of_twenty_healthy_stages_is_one_run() -> None:
    stages = [
        f"+ torchrun stage{number}.py\n{BANNER}SLURM_JOB_ID=17\n"
        "wandb: Tracking run with wandb version 0.19.6\n"
        f"GPU available: True (cuda), used: True\nNamespace(lr={number})\n{STEPS}Training completed\n"
        for number in range(20)
    ]
    found = diagnose_whole("".join(stages))
    assert (causes(found), earlier(found)) == ([], ())


@pytest.mark.parametrize(
    ("state", "start_time_s", "is_left"),
    [
        ("PENDING", 1e10, False),
        ("NODE_FAIL", 1.0, False),
        ("RUNNING", 1e10, True),
        ("COMPLETED", 1e10, True),
        (None, None, False),
    ],
)
def test_slurm_s_own_word_of_a_requeue_parts_the_attempts_once_the_job_was_started_again(
    state: str | None, start_time_s: float | None, is_left: bool
) -> None:
    text = OOM + CANCELLED.format("JOB REQUEUE")
    job = None
    if state is not None:
        times = (1, 0, 600, 1.0, start_time_s, None)
        job = Job("17", "mine", "ada", state, None, "gpu", "node1", 1, 2, 0, *times)
    snapshot = TargetSnapshot("17", None, job, log_hits=scan(text), log_tails=(tail_of(text),))
    found = Engine(build()).diagnose(snapshot, History())
    assert ("cuda_oom" not in [each.cause for each in found.findings]) is is_left


def test_an_attempt_that_coach_s_batch_script_begins_leaves_the_one_before() -> None:
    script = (Path(__file__).parents[2] / "launch" / "golden" / "baseline-1-cpu.sh").read_text()
    (spoken,) = re.findall(r'ATTEMPT="(.*)"', script)
    for name, value in {"$((SLURM_RESTART_COUNT + 1))": "2", "$SLURM_JOB_ID": "17"}.items():
        spoken = spoken.replace(name, value)
    assert causes(diagnose_whole(f"{OOM}step 1 of an unfinished line {spoken}\n{STEPS}")) == []
