"""`coach why`: six lines for a job, kept for the next call; nothing at a login where all is well."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coach.sources.machine.user import user_name
from tests.forked import typed_coach
from tests.workflows.judging.test_earlier_runs import BEGIN_S, Machine

RECORDINGS = Path(__file__).parents[1] / "recordings"
RUN = "20261121-142233-baseline-4f2a"
LOG = """step 1 loss 2.3
Traceback (most recent call last):
  File "/home/ada/train.py", line 57, in <module>
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 \
GiB of which 1.00 GiB is free.
"""

Coach = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def coach(tmp_path: Path) -> Coach:
    """`coach ARGUMENT…` on a machine where each of Slurm's clients leaves a trace."""
    clients = tmp_path / "bin"
    clients.mkdir()
    for name in ("squeue", "scontrol", "sinfo", "sacct"):
        (clients / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/asked\nexit 1\n")
        (clients / name).chmod(0o755)
    path = f"{clients}:{os.environ['PATH']}"

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "COACH_HOME": str(tmp_path / "home"), "COACH_AS_ROOT": "1", "PATH": path}
        return typed_coach(("why", *arguments), env)

    return call


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run whose loss became NaN, as its own user would find it."""
    run_dir = tmp_path / "home" / "runs" / RUN
    shutil.copytree(RECORDINGS / "nan", run_dir)
    record = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps({**record, "run_id": RUN, "user": user_name()}))
    return run_dir


def test_why_prints_a_log_s_cause_the_line_of_the_program_and_the_fix(coach: Coach, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(LOG)
    done = coach(log)
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert len(lines) <= 6
    assert "it ended with torch.OutOfMemoryError" in lines[0]
    assert lines[1].startswith("  critical MEM001 on GPU 0: CUDA out of memory")
    assert lines[2] == f"  at /home/ada/train.py:57 (log {log}:5)"
    assert lines[3].startswith("  fix: ")


def test_the_verdict_of_a_job_at_its_own_end_has_the_stacks_that_were_taken(
    coach: Coach, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "home")
    run_id = machine.run(1, b"step 1 loss 2.3\n", "TIMEOUT", user=user_name())
    run_dir = machine.settings.runs_root / run_id
    summary = run_dir / "stacks" / "one" / "summary.txt"
    summary.parent.mkdir(parents=True)
    summary.write_text("ranks 0-1 wait in barrier; rank 2 is in train.py\n")
    os.utime(summary, (BEGIN_S + 4100.0, BEGIN_S + 4100.0))
    assert coach("--write-verdict", run_dir).returncode == 0
    (first, *_) = json.loads(coach(run_id, "--format", "json").stdout)["findings"]
    assert first["cause"] == "slurm_timeout"
    assert first["evidence"][-1]["text"].endswith("ranks 0-1 wait in barrier; rank 2 is in train.py")


def test_the_json_is_that_of_check_and_the_verdict_is_kept_for_the_next_call(
    coach: Coach, run_dir: Path
) -> None:
    first = coach(RUN, "--backend", "local", "--format", "json")
    found = json.loads(first.stdout)
    assert set(found) == {"schema", "target", "state", "verdict", "findings", "not_measured"}
    assert (first.returncode, found["findings"][0]["cause"]) == (1, "nan_loss")
    kept = json.loads((run_dir / "verdict.json").read_text())
    assert kept["findings"] == found["findings"]
    shutil.rmtree(run_dir / "metrics")  # only the verdict holds it now
    second = coach(RUN, "--backend", "local", "--format", "json")
    assert (second.returncode, json.loads(second.stdout)) == (1, found)


def test_a_verdict_older_than_the_end_or_behind_a_link_is_not_shown(
    coach: Coach, run_dir: Path, tmp_path: Path
) -> None:
    verdict = run_dir / "verdict.json"
    forged = {"schema": 1, "target": RUN, "state": "FAILED", "findings": [], "not_measured": []}
    verdict.write_text(json.dumps(forged))
    os.utime(verdict, (1.0, 1.0))
    assert "NUM001" in coach(RUN, "--backend", "local").stdout
    verdict.unlink()
    (tmp_path / "elsewhere.json").write_text(json.dumps(forged))
    verdict.symlink_to(tmp_path / "elsewhere.json")
    assert "NUM001" in coach(RUN, "--backend", "local").stdout


@pytest.mark.parametrize("command", ["why", "check", "jobs", "nodes"])
def test_a_slurm_that_does_not_answer_is_reported_once_while_the_command_waits(
    tmp_path: Path, command: str
) -> None:
    """A dead controller lets its clients hang for nine seconds, often several times in a row."""
    may, clients = tmp_path / "may", tmp_path / "bin"
    clients.mkdir()
    for name in ("squeue", "scontrol", "sinfo", "sacct"):
        waits = f"while [ ! -e {may} ]; do sleep 0.05; done"
        (clients / name).write_text(
            f"#!/bin/sh\n{waits}\necho 'Unable to contact slurm controller' >&2\nexit 1\n"
        )
        (clients / name).chmod(0o755)
    path = f"{clients}:{os.environ['PATH']}"
    env = {**os.environ, "COACH_HOME": str(tmp_path / "home"), "COACH_AS_ROOT": "1", "PATH": path}
    target = ["17"] if command in ("why", "check") else []
    argv = [sys.executable, "-m", "coach", command, *target, "--format", "json", "--backend", "slurm"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, env=env, **pipes) as process:  # type: ignore[call-overload]
        first = process.stderr.readline()
        may.touch()
        output, errors = process.communicate()
    assert first.startswith("coach: Slurm has not answered for 3 s; ")
    assert "Unable to contact slurm controller" in errors
    assert "has not answered" not in errors
    assert (process.returncode, output) == (2, "")


def test_without_a_job_id_why_explains_the_last_bad_end(coach: Coach, run_dir: Path) -> None:
    assert coach("--backend", "local").stdout == "No job of yours is known to have ended badly.\n"
    assert json.loads(coach("--backend", "local", "--format", "json").stdout)["jobs"] == []
    older = run_dir.with_name(RUN.replace("4f2a", "0000"))
    shutil.copytree(run_dir, older)
    for path, ended_s in ((run_dir, 1795271000.0), (older, 1795270000.0)):
        record = json.loads((path / "run.json").read_text())
        ended = {"state": "FAILED", "ended_time_s": ended_s}
        (path / "run.json").write_text(json.dumps({**record, "run_id": path.name, **ended}))
        (path / "exit.json").write_text(json.dumps({"schema": 1, "exit_code": 1, **ended}))
    assert coach("--backend", "local").stdout.startswith(f"{RUN}  FAILED")
    shutil.rmtree(run_dir)
    assert coach("--backend", "local").stdout.startswith(f"{older.name}  FAILED")
