"""A user's own batch file with `coach run` in it: coach diagnoses the output of the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("launcher", ["", "srun"])
def test_the_job_s_own_log_is_read_for_the_run(
    slurm: SlurmCluster, user_coach: InstalledCoach, launcher: str
) -> None:
    home = user_coach.user.home
    command = f"{user_coach.python} -m coach.node run -- python3 -c 'import torch_of_nobody'"
    job_id = slurm.submit(
        f"export HOME={home}; {launcher} {command}", "-N1", "-D", str(home), "-o", "out.txt"
    )
    slurm.wait_state(job_id, "FAILED")
    value = json.loads(user_coach("check", job_id, "--format", "json").stdout)
    assert "module_not_found" in [finding["cause"] for finding in value["findings"]]
    [run_dir] = (home / "coach" / "runs").glob("2*")
    output = json.loads((run_dir / "run.json").read_text())["output"]
    log = str(home / "out.txt")
    assert output == ({} if launcher else {"stdout": log, "stderr": log})
    assert not Path(run_dir / "stdout.log").exists()
