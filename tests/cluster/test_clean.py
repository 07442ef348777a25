"""The queries of `coach runs` and `coach runs clean` to a real queue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach

pytestmark = pytest.mark.cluster


def test_a_waiting_run_is_never_removed_and_goes_once_slurm_says_that_it_was_cancelled(
    user_coach: InstalledCoach, slurm: SlurmCluster
) -> None:
    later = ("--sbatch", "begin=now+1hour", "--format", "json")
    launched = user_coach("launch", "baseline", "--cpus-per-task", "1", *later)
    assert launched.returncode == 0, launched.stderr
    run = json.loads(launched.stdout)
    assert "free of" in launched.stderr  # the plan showed the free space
    run_dir, run_id = Path(run["run_dir"]), run["run_id"]
    refused = user_coach("runs", "clean", run_id, "--yes")
    assert f"kept: {run_id}: job {run['job_id']} is PENDING" in refused.stderr
    assert run_dir.is_dir()
    slurm.run(["scancel", run["job_id"]])  # behind coach's back
    assert json.loads((run_dir / "run.json").read_text())["state"] == "PENDING"
    (listed,) = json.loads(user_coach("runs", "--format", "json").stdout)["runs"]
    assert listed["state"] == "CANCELLED"
    assert listed["size_bytes"] > 1000
    removed = user_coach("runs", "clean", "--state", "CANCELLED", "--yes")
    assert removed.returncode == 0, removed.stderr
    assert not run_dir.exists()
    assert run_dir.parent.is_dir()


def test_the_waiting_runs_of_a_sweep_are_never_removed(
    slurm: SlurmCluster, bare_coach: InstalledCoach
) -> None:
    home = bare_coach.user.home
    (home / "tune.py").write_text("import sys\nprint(sys.argv)\n")
    sweep = ("--sweep", "lr=2,3,4", "--at-once", "1", "--python", "python3", "--sbatch", "begin=now+1hour")
    launched = bare_coach("launch", "tune.py", *sweep, "--format", "json", "--", "--lr", "1")
    assert launched.returncode == 0, launched.stderr
    runs = json.loads(launched.stdout)["runs"]
    for run in runs:  # as if they had waited for twenty minutes
        record = Path(run["run_dir"]) / "run.json"
        written = json.loads(record.read_text())
        record.write_text(json.dumps({**written, "created_time_s": written["created_time_s"] - 1200}))
    listed = json.loads(bare_coach("runs", "--format", "json").stdout)["runs"]
    assert {(run["job_id"], run["state"]) for run in listed} == {(run["job_id"], "PENDING") for run in runs}
    cleaned = bare_coach("runs", "clean", "--yes")
    assert (cleaned.returncode, "nothing to remove" in cleaned.stderr) == (0, True), cleaned.stderr
    assert all(Path(run["run_dir"], "job.sh").is_file() for run in runs)
