"""coach is killed while sbatch waits for the controller: the job may be in the queue, or nowhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster-trainings")]

LAUNCH = ("launch", "baseline", "--sbatch", "begin=now+1hour")
SLOW_TO_ANSWER = '{sbatch} "$@" > {folder}/answer; touch {folder}/reached; sleep 60; cat {folder}/answer'
SLOW_TO_ASK = 'touch {folder}/reached; sleep 60; exec {sbatch} "$@"'


def client_folder(parent: Path) -> Path:
    folder = Path(tempfile.mkdtemp(dir=parent))
    folder.chmod(0o777)
    return folder


def killed_in_sbatch(coach: InstalledCoach, folder: Path, body: str) -> str:
    """Launch with an sbatch of this body, and kill coach when it was reached; the run."""
    client = folder / "sbatch"
    client.write_text(f"#!/bin/sh\n{body.format(sbatch=shutil.which('sbatch'), folder=folder)}\n")
    client.chmod(0o755)
    before = run_ids(coach)
    process = subprocess.Popen(
        coach.user.argv(coach.argv(*LAUNCH)),
        env=coach.env({"PATH": f"{folder}:{coach.env()['PATH']}"}),
        cwd=coach.user.home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until((folder / "reached").exists, 60 * PATIENCE, "sbatch is reached")
        (run_id,) = run_ids(coach) - before
        if body == SLOW_TO_ASK:
            assert row(coach, run_id)["submission"] == "launching"
            assert "its launch is under way" in coach("cancel", run_id, "--yes").stderr
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    return run_id


def run_ids(coach: InstalledCoach) -> set[str]:
    return {path.name for path in (coach.user.home / "coach" / "runs").glob("2*")}


def listed(coach: InstalledCoach) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(coach("runs", "--format", "json").stdout)["runs"]
    return found


def row(coach: InstalledCoach, run_id: str) -> dict[str, Any]:
    return next(run for run in listed(coach) if run["run_id"] == run_id)


def test_a_launch_that_was_killed_is_found_in_the_queue_or_called_never_submitted(
    slurm: SlurmCluster, user_coach: InstalledCoach, open_directory: Path
) -> None:
    folder = client_folder(open_directory)
    queued = killed_in_sbatch(user_coach, folder, SLOW_TO_ANSWER)
    nowhere = killed_in_sbatch(user_coach, client_folder(open_directory), SLOW_TO_ASK)
    job_id = (folder / "answer").read_text().strip()

    dry = user_coach(*LAUNCH, "--dry-run")
    assert dry.returncode == 0
    assert f"a run of this recipe is queued as job {job_id} (PENDING)" in dry.stderr
    assert f"a launch of this recipe was interrupted and never reached Slurm: {nowhere}" in dry.stderr

    one, other = row(user_coach, queued), row(user_coach, nowhere)
    assert (one["job_id"], one["state"], one["submission"]) == (job_id, "PENDING", None)
    assert (other["job_id"], other["state"], other["submission"]) == (None, None, "never_submitted")
    assert "never submitted" in user_coach("runs").stdout

    # It is still reported after run.json has the job, because no user has seen the answer of this launch.
    assert f"is queued as job {job_id}" in user_coach(*LAUNCH, "--dry-run").stderr
    refused = user_coach("cancel", nowhere, "--yes")
    assert (refused.returncode, "was never submitted" in refused.stderr) == (2, True)
    assert slurm.job_state(job_id) == "PENDING"
    done = user_coach("cancel", queued, "--yes")
    assert (done.returncode, f"scancel {job_id}" in done.stderr) == (0, True), done.stderr
    slurm.wait_state(job_id, "CANCELLED")
    assert row(user_coach, queued)["state"] == "CANCELLED"


def test_without_an_answer_of_slurm_s_a_lost_launch_may_be_queued(
    slurm: SlurmCluster, user_coach: InstalledCoach, open_directory: Path
) -> None:
    run_id = killed_in_sbatch(user_coach, client_folder(open_directory), SLOW_TO_ANSWER)
    slurm.kill_controller()
    refused = user_coach("cancel", run_id, "--yes")
    assert refused.returncode == 2
    assert "it may be queued: Slurm does not answer" in refused.stderr
    assert "never" not in refused.stderr
