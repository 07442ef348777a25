"""From a job that failed to its cause: at most two keys on the first screen, at most five seconds after the
queue showed the failure. Real keys, a real screen, a real Slurm; the programs print what torch and Slurm
print."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.terminal.tmux import Terminal

pytestmark = [pytest.mark.terminal, pytest.mark.cluster]

OpenTerminal = Callable[..., Terminal]
WITHIN_S = 5.0
INTERVAL_S = 15.0
"""At which coach asks for its user's jobs."""

TRACEBACK = "python3 -c 'def train(): raise ValueError(\"11 classes, 10 expected\")\ntrain()'"
CUDA_OOM = (
    "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which 1.10 GiB is free.' >&2; exit 1"
)
HOST_OOM = (
    'echo "slurmstepd: error: Detected 1 oom_kill event in StepId=$SLURM_JOB_ID.batch. Some of the step '
    'tasks have been OOM Killed." >&2; kill -9 $$'
)
ARRAY = f'[ "$SLURM_ARRAY_TASK_ID" != 2 ] || {{ {TRACEBACK}; }}'


def first_screen(
    coach: InstalledCoach,
    open_terminal: OpenTerminal,
    columns: int = 80,
    rows: int = 24,
) -> Terminal:
    terminal = open_terminal(coach.argv(), columns=columns, rows=rows, env=coach.env(), as_user=coach.user)
    terminal.wait_for("nodes ·", "queue ·", timeout_s=60)
    return terminal


@pytest.mark.parametrize(
    ("script", "options", "code", "words"),
    [
        pytest.param(TRACEBACK, (), "COD001", "11 classes, 10 expected", id="traceback"),
        pytest.param(CUDA_OOM, (), "MEM001", "CUDA out of memory", id="cuda-oom"),
        pytest.param(HOST_OOM, (), "MEM007", "Host memory ran out", id="host-oom"),
        pytest.param(ARRAY, ("--array=0-3",), "COD001", "11 classes, 10 expected", id="task-of-an-array"),
    ],
)
def test_a_job_that_failed_is_named_with_its_cause_and_one_key_shows_the_proof(
    slurm: SlurmCluster,
    user_coach: InstalledCoach,
    open_terminal: OpenTerminal,
    script: str,
    options: tuple[str, ...],
    code: str,
    words: str,
) -> None:
    job_id = slurm.submit(script, *options, "--job-name=broken")
    failed = f"{job_id}_2" if options else job_id
    slurm.wait_state(failed, "FAILED", "OUT_OF_MEMORY")
    terminal = first_screen(user_coach, open_terminal)
    # Jobs of other tests are in the queue, too, and one of the same cause may be under the cursor.
    terminal.wait_for(re.compile(rf"{code} .*\b{failed}\b"), timeout_s=WITHIN_S)
    terminal.send("Enter")
    screen = terminal.wait_for(code, re.compile(r"› job \d+"), timeout_s=WITHIN_S)
    assert words in " ".join(screen.split()), screen


@pytest.mark.long
def test_a_job_that_met_its_limit_is_named_so(
    slurm: SlurmCluster, user_coach: InstalledCoach, open_terminal: OpenTerminal
) -> None:
    terminal = first_screen(user_coach, open_terminal)
    job_id = slurm.submit("sleep 600", "--time=1", "--job-name=late")
    slurm.wait_state(job_id, "TIMEOUT", timeout_s=150)
    terminal.wait_for(re.compile(rf"JOB002 .*\b{job_id}\b"), timeout_s=INTERVAL_S + WITHIN_S)
    # A job of another test that met its limit, too, may be under the cursor.
    terminal.send("Enter")
    terminal.wait_for(re.compile(r"› job \d+"), "time limit", timeout_s=WITHIN_S)


def test_another_user_s_job_is_opened_on_its_cause_by_its_number(
    slurm: SlurmCluster, user_coach: InstalledCoach, open_terminal: OpenTerminal, open_directory: Path
) -> None:
    log = open_directory / "somebody-else.out"
    job_id = slurm.submit(TRACEBACK, "--job-name=of-root", f"--output={log}", as_root=True)
    slurm.wait_state(job_id, "FAILED")
    log.chmod(0o644)
    terminal = first_screen(user_coach, open_terminal)
    terminal.send_packet(f":{job_id}\r")  # typed faster than a screen opens
    screen = terminal.wait_for("COD001", "11 classes, 10 expected", "of root", timeout_s=WITHIN_S)
    assert f"job {job_id}" in screen
    terminal.send("Escape")
    terminal.wait_for("queue ·")
    terminal.send("a")
    terminal.send_packet("/of-root\r")  # other tests' jobs may fill the screen
    # coach queries everybody's jobs once a minute.
    terminal.wait_for(re.compile(rf"\b{job_id} +of-root"), timeout_s=90)


def test_a_job_that_hangs_says_how_long_its_log_is_silent(
    slurm: SlurmCluster, user_coach: InstalledCoach, open_terminal: OpenTerminal
) -> None:
    job_id = slurm.submit("echo step 1 loss 2.0; sleep 300", "--job-name=stuck")
    slurm.wait_state(job_id, "RUNNING")
    log = slurm.user.home / f"slurm-{job_id}.out"
    terminal = first_screen(user_coach, open_terminal)
    terminal.wait_for(re.compile(rf"▸ +{job_id}"))
    ten_minutes_ago = time.time() - 600
    os.utime(log, (ten_minutes_ago, ten_minutes_ago))
    terminal.send("Enter")
    terminal.wait_for(re.compile(r"silent for \d+ min"), timeout_s=WITHIN_S)


@pytest.mark.parametrize(("columns", "rows"), [(80, 36), pytest.param(120, 36, marks=pytest.mark.long)])
def test_jobs_that_fail_together_are_all_judged_and_the_same_cause_is_one_line(
    slurm: SlurmCluster, user_coach: InstalledCoach, open_terminal: OpenTerminal, columns: int, rows: int
) -> None:
    terminal = first_screen(user_coach, open_terminal, columns, rows)
    scripts = {"boom": TRACEBACK, "gpu-full": CUDA_OOM, "gpu-full-too": CUDA_OOM, "killed": HOST_OOM}
    jobs = [slurm.submit(script, f"--job-name={name}") for name, script in scripts.items()]
    for job_id in jobs:
        slurm.wait_state(job_id, "FAILED", "OUT_OF_MEMORY")
    boom = re.compile(rf"COD001 .*\b{jobs[0]}\b")
    of_both = re.compile(rf"MEM001 ×[2-9].* (?:{jobs[1]}|{jobs[2]})\b")
    killed = re.compile(rf"MEM007 .*\b{jobs[3]}\b")
    terminal.wait_for(boom, of_both, killed, timeout_s=INTERVAL_S + WITHIN_S)
    terminal.send("f")
    terminal.wait_for("findings in", boom, killed, timeout_s=WITHIN_S)
