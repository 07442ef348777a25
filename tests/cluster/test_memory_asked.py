"""A real Slurm that ends jobs above the memory that they asked for, and gives little to a job that asks for
none: a recipe asks for enough, and the first fix of one that was given too little is enough."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.slurm import SlurmCluster, booted
from tests.installed import InstalledCoach

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

CONF = """\
JobAcctGatherParams=OverMemoryKill
PartitionName=little Nodes=ALL DefMemPerNode=300 State=UP DefaultTime=10
"""
SETS = ("width=16", "max_steps=4", "eval_every_epoch=false")


@pytest.fixture(scope="module")
def enforcing_slurm() -> Iterator[SlurmCluster]:
    def make(directory: Path) -> SlurmCluster:
        return SlurmCluster(directory, num_nodes=1, num_gpus=0, more_conf=CONF)

    with booted("coach-memory", make) as cluster:
        yield cluster


def ended(coach: InstalledCoach, *words: str) -> dict[str, Any]:
    """run.json of a launch, after its end."""
    launched = coach(*words, "--wait", "--format", "json", timeout_s=300)
    run, _ = json.JSONDecoder().raw_decode(launched.stdout)
    written: dict[str, Any] = json.loads((Path(run["run_dir"]) / "run.json").read_text())
    return written


def test_a_recipe_gets_the_memory_that_the_partition_does_not_give(
    enforcing_slurm: SlurmCluster, train_python: Path
) -> None:
    coach = InstalledCoach(train_python, enforcing_slurm.user, enforcing_slurm.env)
    sets = [word for name in SETS for word in ("--set", name)]
    run = ended(coach, "launch", "ddp", "--partition", "little", *sets)
    assert run["state"] == "COMPLETED"
    shown = enforcing_slurm.run(["scontrol", "show", "job", run["job_id"]])
    assert f"MinMemoryNode={run['resources']['mem']}" in shown.stdout
    killed = ended(coach, "launch", "baseline", "--partition", "little", "--mem", "300M", *sets)
    assert killed["state"] != "COMPLETED"
    child = ended(coach, "fix", killed["run_id"], "MEM007", "--yes")
    assert (child["state"], child["fix"]["rule"]) == ("COMPLETED", "MEM007")
    checked = json.loads(coach("check", child["run_id"], "--format", "json").stdout)
    assert [each["rule"] for each in checked["findings"] if each["severity"] != "info"] == []
