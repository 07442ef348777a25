"""The first launch of a newcomer: neither coach's Python nor the job's has torch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster-trainings")]

SMALL = ("--gpus", "0", "--set", "max_steps=3", "--set", "width=8", "--set", "num_train_samples=128")


def num_jobs(slurm: SlurmCluster) -> int:
    return len(slurm.run(["squeue", "--all", "--noheader", "--states=all"]).stdout.splitlines())


@pytest.mark.parametrize("option", [(), ("--dry-run",)])
def test_a_launch_without_torch_is_not_submitted_and_names_the_active_environment(
    slurm: SlurmCluster, bare_coach: InstalledCoach, train_python: Path, option: tuple[str, ...]
) -> None:
    before = num_jobs(slurm)
    active = {"VIRTUAL_ENV": str(train_python.parent.parent)}
    done = bare_coach("launch", "baseline", *SMALL, *option, env=active)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "recipe baseline needs torch" in done.stderr
    assert f"--env=venv={train_python.parent.parent}" in done.stderr
    assert num_jobs(slurm) == before
    assert json.loads(bare_coach("runs", "--format", "json").stdout)["runs"] == []


def test_the_option_that_the_refusal_offers_trains(bare_coach: InstalledCoach, train_python: Path) -> None:
    active = {"VIRTUAL_ENV": str(train_python.parent.parent)}
    refused = bare_coach("launch", "baseline", *SMALL, env=active)
    option = re.search(r"--env=[^\s,;]+", refused.stderr)
    assert option is not None, refused.stderr
    args = ("launch", "baseline", option[0], *SMALL, "--wait", "--format", "json")
    done = bare_coach(*args, env=active, timeout_s=180)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "COMPLETED"
