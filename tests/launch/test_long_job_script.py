"""The script of a long training under bash, with small stand-ins for srun, scancel and scontrol."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from coach.launch.own_program import own_request, read_own_program
from coach.launch.plan import Facts, make_plan
from coach.launch.recipe import recipe_of
from coach.model.launching.launch import LaunchRequest
from tests.launch.examples import CLUSTER, PATHS, RUN_ID
from tests.waiting import wait_until

pytestmark = pytest.mark.real

TRAINING = """
import argparse, pathlib, signal, sys
parser = argparse.ArgumentParser()
parser.add_argument("--save_dir")
parser.add_argument("--saves", type=int)
parser.add_argument("--late", type=int, default=0)
parser.add_argument("--resume")
args = parser.parse_args()
if args.resume:
    print("goes on from", args.resume)
    sys.exit(0)
def save():
    place = pathlib.Path(args.save_dir, "checkpoint-5")
    place.mkdir(parents=True)
    (place / "state.txt").write_text("5")
def save_and_end(*_):
    if args.late == 1:
        save()
    sys.exit(0)
if args.saves:
    save()
if args.late:
    signal.signal(signal.SIGTERM, save_and_end)
pathlib.Path("ready").touch()
signal.pause()
"""
STEP = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
echo $$ > "$STUBS/pid"
exec "$@"
"""
CANCEL = """#!/bin/bash
kill -s "${1#--signal=}" "$(cat "$STUBS/pid")"
"""


@dataclass
class Job:
    home: Path
    script: Path
    run_dir: Path

    def start(self, restarts: int = 0, task: str | None = None) -> subprocess.Popen[str]:
        (self.home / "ready").unlink(missing_ok=True)
        env = {
            "PATH": f"{self.home}/bin:{os.environ['PATH']}",
            "STUBS": str(self.home),
            "HOME": str(self.home),
        }
        env |= {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "node1", "SLURM_RESTART_COUNT": str(restarts)}
        env |= {"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": task} if task is not None else {}
        return subprocess.Popen(
            ["bash", str(self.script)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def near_its_limit(self, task: str | None = None) -> tuple[int, str, str]:
        """Status, output and errors of a segment that is signalled once it trains."""
        job = self.start(task=task)
        wait_until((self.home / "ready").exists, 30, "it trains")
        job.send_signal(signal.SIGUSR1)
        output, errors = job.communicate(timeout=40)
        return job.returncode, output, errors


def make_job(
    home: Path, saves: int, until_done: int | None = 2, time_limit_s: int | None = 600, late: int = 0
) -> Job:
    """`late`: at the signal the training exits 0, if 1 after it has written its checkpoint."""
    (home / "train.py").write_text(TRAINING)
    (home / "bin").mkdir()
    stubs = {"srun": STEP, "scancel": CANCEL, "scontrol": '#!/bin/bash\necho "$@" >> "$STUBS/asked"\n'}
    for name, text in stubs.items():
        (home / "bin" / name).write_text(text)
        (home / "bin" / name).chmod(0o755)
    words = ("--save_dir", "my out", "--saves", str(saves), "--late", str(late))
    program = read_own_program(str(home / "train.py"), words, home)
    asked = LaunchRequest(
        "", gpus_per_node=0, time_limit_s=time_limit_s, until_done=until_done, python=sys.executable
    )
    run_dir = home / "runs" / RUN_ID
    run_dir.mkdir(parents=True)  # a job waits ten seconds for it
    paths = replace(
        PATHS,
        run_dir=str(run_dir),
        code_dir=str(Path.cwd()),
        python=sys.executable,
        own_python=sys.executable,
        cache_dir=str(home / "cache"),
        scratch_cache_dir=None,
    )
    request = own_request(program, asked)
    facts = Facts(paths, "anna", 1795271000.0, "0.1.0", None)
    script = home / "job.sh"
    script.write_text(make_plan(request, recipe_of(request), CLUSTER, facts, RUN_ID).script)
    return Job(home, script, run_dir)


def test_near_its_limit_the_job_is_requeued_and_the_program_gets_its_checkpoint(tmp_path: Path) -> None:
    job = make_job(tmp_path, saves=1)
    status, output, errors = job.near_its_limit()
    checkpoint = tmp_path / "my out" / "checkpoint-5"
    assert (tmp_path / "asked").read_text() == "requeue 17\n", errors
    assert status != 0
    assert f"requeuing to go on from {checkpoint}" in output
    assert "state" not in json.loads((job.run_dir / "exit.json").read_text())
    second = job.start(restarts=1)
    output, errors = second.communicate(timeout=40)
    assert second.returncode == 0, errors
    assert f"goes on from {checkpoint}" in output
    segments = json.loads((job.run_dir / "run.json").read_text())["segments"]
    assert [each["why"] for each in segments] == ["the time limit was near", "COMPLETED"]
    assert json.loads((job.run_dir / "exit.json").read_text())["state"] == "COMPLETED"


def test_a_training_that_saves_at_the_signal_and_exits_0_goes_on(tmp_path: Path) -> None:
    job = make_job(tmp_path, saves=0, late=1)
    status, _, errors = job.near_its_limit()
    assert status == 0
    assert (tmp_path / "asked").read_text() == "requeue 17\n", errors
    assert "segment 1 ended (signalled near the time limit, exited 0)" in errors
    second = job.start(restarts=1)
    _, errors = second.communicate(timeout=40)
    segments = json.loads((job.run_dir / "run.json").read_text())["segments"]
    assert [each["why"] for each in segments] == ["signalled near the time limit, exited 0", "COMPLETED"]


def test_a_training_that_exits_0_at_the_signal_without_a_checkpoint_is_told(tmp_path: Path) -> None:
    job = make_job(tmp_path, saves=0, late=2)
    status, _, errors = job.near_its_limit()
    assert (status, (tmp_path / "asked").exists()) == (0, False)
    (told,) = [line for line in errors.splitlines() if line.startswith("coach: no further segment")]
    assert told.endswith("the training was signalled and exited 0: is it complete?")
    assert json.loads((job.run_dir / "exit.json").read_text())["state"] == "COMPLETED"


def test_the_requeue_of_a_sweep_s_run_names_its_task_alone(tmp_path: Path) -> None:
    _, _, errors = make_job(tmp_path, saves=1).near_its_limit(task="3")
    assert (tmp_path / "asked").read_text() == "requeue 17_3\n", errors


def test_a_program_that_saves_nothing_ends_at_its_limit_with_one_clear_line(tmp_path: Path) -> None:
    job = make_job(tmp_path, saves=0)
    _, _, errors = job.near_its_limit()
    assert not (tmp_path / "asked").exists()
    assert [line for line in errors.splitlines() if line.startswith("coach: no further segment")] == [
        f"coach: no further segment: no newer checkpoint was written in {job.run_dir}, {tmp_path}/my out"
    ]
    assert json.loads((job.run_dir / "exit.json").read_text())["state"] == "TIMEOUT"


@pytest.mark.parametrize(("reason", "state"), [(" DUE TO TIME LIMIT", "TIMEOUT"), ("", "CANCELLED")])
def test_a_job_that_slurm_ends_at_a_limit_of_the_partition_has_timed_out(
    tmp_path: Path, reason: str, state: str
) -> None:
    job = make_job(tmp_path, saves=0, until_done=None, time_limit_s=None)
    (tmp_path / "runs" / ".logs").mkdir()
    line = f"slurmstepd: error: *** JOB 17 ON node1 CANCELLED AT 2026-11-26T18:32:18{reason} ***\n"
    (tmp_path / "runs" / ".logs" / f"{RUN_ID}.err").write_text(line)
    process = job.start()
    wait_until((tmp_path / "ready").exists, 30, "it trains")
    process.send_signal(signal.SIGTERM)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
    _, errors = process.communicate(timeout=40)
    assert json.loads((job.run_dir / "exit.json").read_text())["state"] == state, errors
