"""A real Slurm that holds jobs to their memory by cgroups: the kernel's kill is named by the job itself, also
where Slurm says it only after the batch script."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from coach.runs import SAID_OF_END
from tests.cluster.slurm import SlurmCluster, booted
from tests.installed import InstalledCoach

pytestmark = [pytest.mark.cluster, pytest.mark.memory_cgroup]

CONF = "ProctrackType=proctrack/cgroup\nTaskPlugin=task/cgroup\n"
CGROUPS = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainRAMSpace=yes\nConstrainDevices=no\n"
EATER = "data = []\nwhile True:\n    data.append(bytearray(16 << 20))\n"
BATCH = "#!/bin/bash\n#SBATCH --mem=300M --time=5:00\npython3 eat.py\n"


@pytest.fixture(scope="module")
def bounded_slurm() -> Iterator[SlurmCluster]:
    def make(directory: Path) -> SlurmCluster:
        more = {"cgroup.conf": CGROUPS}
        return SlurmCluster(directory, num_nodes=1, num_gpus=0, more_conf=CONF, more_files=more)

    with booted("coach-cgroup", make) as cluster:
        yield cluster
    for controller in Path("/sys/fs/cgroup").iterdir():
        for group in sorted(controller.glob("slurm_node1/**/"), reverse=True):
            with contextlib.suppress(OSError):
                group.rmdir()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("eat.py", "--gpus", "0", "--mem", "300M", "--time", "5:00"), id="step"),
        pytest.param(("batch.sh",), id="batch step"),
    ],
)
def test_a_job_that_ran_out_of_memory_gets_a_finding_with_the_fix(
    bounded_slurm: SlurmCluster, train_python: Path, words: tuple[str, ...]
) -> None:
    coach = InstalledCoach(train_python, bounded_slurm.user, bounded_slurm.env)
    (coach.user.home / "eat.py").write_text(EATER)
    (coach.user.home / "batch.sh").write_text(BATCH)
    launched = coach("launch", *words, "--wait", "--format", "json", timeout_s=120)
    answer, _ = json.JSONDecoder().raw_decode(launched.stdout)
    run_dir = Path(answer["run_dir"])
    told = json.loads((run_dir / "exit.json").read_text())["nodes"]["node1"]
    assert told["oom_kills"] == 1
    (first, *_) = json.loads((run_dir / "verdict.json").read_text())["findings"]
    assert (first["rule"], first["subject"]["node"], first["fixes"][0]["changes"]) == (
        "MEM007",
        "node1",
        {"mem": "640M"},
    )
    outputs = [run_dir / "stderr.log", *coach.user.home.glob("slurm-*.out")]
    said = [line for file in outputs if file.exists() for line in file.read_text().splitlines()]
    assert any(line.startswith(SAID_OF_END) and "MEM007" in line for line in said)
