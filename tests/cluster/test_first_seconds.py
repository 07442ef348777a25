"""A job that cannot train ends within seconds on the real Slurm, and its cause is the first that the check
says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster]

FINAL = ("FAILED", "COMPLETED", "CANCELLED", "NODE_FAIL", "TIMEOUT")


def test_jobs_that_cannot_train_end_at_once_and_say_why(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    home = user_coach.user.home
    env = {"COACH_HOME": str(home)}

    def launch(*arguments: str) -> dict[str, Any]:
        done = user_coach("launch", *arguments, "--format", "json", env=env, timeout_s=90)
        run: dict[str, Any] = json.loads(done.stdout)
        return run

    def check(run: dict[str, Any]) -> dict[str, Any]:
        diagnosis: dict[str, Any] = json.loads(
            user_coach("check", run["run_id"], "--format", "json", env=env).stdout
        )
        return diagnosis

    def seconds(run: dict[str, Any]) -> float:
        record = json.loads((Path(run["run_dir"]) / "run.json").read_text())
        return float(record["ended_time_s"] - record["started_time_s"])

    # The folder of the log cannot be written when the job starts.
    silent = launch("baseline", "--sbatch", "begin=now+3")
    (home / "runs" / ".logs").chmod(0)

    # The GPUs of the test cluster are devices of another kind: no node has a driver.
    (home / "config.toml").write_text('data_dir = "/scratch/no-such-data"\n')
    slurm.wait_state(silent["job_id"], *FINAL, timeout_s=60)
    wait_until(lambda: check(silent)["state"] in FINAL, 60, "the job without a log ends", every_s=0.5)
    (home / "runs" / ".logs").chmod(0o700)
    first = check(silent)["findings"][0]
    assert (first["cause"], first["primary"]) == ("no_log", True)
    assert "its folder does not exist or is not writable" in json.dumps(first["evidence"])

    # The run directory cannot be written when the job starts; its log lies elsewhere.
    unwritable = launch("baseline", "--sbatch", "begin=now+2")
    os.chown(unwritable["run_dir"], 0, 0)
    Path(unwritable["run_dir"]).chmod(0o555)

    without_gpu = launch("ddp", "--nodes", "2", "--gpus", "1", "--partition", "gpu", "--wait")
    first = check(without_gpu)["findings"][0]
    assert (first["cause"], first["primary"]) == ("cuda_unavailable", True)
    assert "torch 2." in first["summary"]
    assert "NVIDIA driver there" in first["summary"]
    assert seconds(without_gpu) < 30

    without_data = launch("baseline", "--wait")
    first = check(without_data)["findings"][0]
    assert (first["cause"], first["primary"]) == ("file_not_found", True)
    assert "/scratch/no-such-data" in first["summary"]
    assert seconds(without_data) < 30

    slurm.wait_state(unwritable["job_id"], *FINAL, timeout_s=60)
    wait_until(lambda: check(unwritable)["state"] in FINAL, 60, "the unwritable run ends", every_s=0.5)
    first = check(unwritable)["findings"][0]
    assert (first["cause"], first["primary"]) == ("permission_denied", True)
    assert unwritable["run_dir"] in first["summary"]
