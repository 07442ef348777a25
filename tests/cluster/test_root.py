"""Root looks at a real cluster, and changes nothing on it by mistake."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster

pytestmark = pytest.mark.cluster


def test_root_sees_everything_and_launches_only_with_as_root(
    slurm: SlurmCluster, train_python: Path, tmp_path: Path
) -> None:
    env = {"COACH_HOME": str(tmp_path), "COACH_AS_ROOT": "", "PATH": os.environ["PATH"]}
    coach = str(train_python.parent / "coach")

    listed = slurm.run([coach, "jobs", "--all", "--format", "json"], as_root=True, env=env)
    assert json.loads(listed.stdout)["schema"] == 1, listed.stderr

    refused = slurm.run([coach, "launch", "baseline", "--dry-run"], as_root=True, env=env)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr.splitlines()[0] == "coach: coach is read-only and launches nothing: you are root"
    assert not (tmp_path / "runs").exists()

    refused = slurm.run([coach, "cancel", "1", "--yes"], as_root=True, env=env)
    assert "coach is read-only and cancels nothing: you are root" in refused.stderr

    meant = slurm.run([coach, "launch", "baseline", "--dry-run", "--as-root"], as_root=True, env=env)
    assert meant.returncode == 0, meant.stderr
    assert meant.stdout.startswith("#!/bin/bash\n")
