"""A sweep on the real Slurm: submitted whole, one job after the other, shown as one curve."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach

pytestmark = [pytest.mark.cluster]


@pytest.mark.long  # short: tests/cluster/test_own_training.py, tests/workflows/launching/test_sweep.py
def test_scaling_over_ranks_is_one_launch_and_one_table(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    values = ("width=8", "max_steps=8", "num_workers=0", "num_train_samples=512", "world_sizes=1,2")
    said = [word for value in values for word in ("--set", value)]
    launched = user_coach(
        "launch", "scale", "--cpus-per-task", "1", *said, "--wait", "--format", "json", timeout_s=240
    )
    assert launched.returncode == 0, launched.stderr
    group = json.loads(launched.stdout)
    runs = group["runs"]
    assert [run["state"] for run in runs] == ["COMPLETED", "COMPLETED"]
    assert int(runs[1]["job_id"]) == int(runs[0]["job_id"]) + 1
    records = [json.loads((Path(run["run_dir"]) / "run.json").read_text()) for run in runs]
    assert records[0]["ended_time_s"] <= records[1]["started_time_s"]
    table = json.loads(user_coach("compare", group["group_id"], "--format", "json").stdout)
    assert [point["world_size"] for point in table["points"]] == [1, 2]
    assert table["points"][0]["efficiency"] == 1.0
    assert table["points"][1]["efficiency"] > 0


def test_a_group_with_one_refused_job_leaves_nothing_in_the_queue(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    def job_ids() -> set[str]:
        return {job["job_id"] for job in json.loads(user_coach("jobs", "--format", "json").stdout)["jobs"]}

    before = job_ids()  # Slurm shows ended jobs of other tests for a while
    refused = user_coach("launch", "scale", "--set", "world_sizes=1,64")
    assert refused.returncode == 2
    assert "64 ranks" in refused.stderr
    assert job_ids() <= before
