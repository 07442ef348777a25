"""The doctor's judgement of a real cluster agrees with that cluster."""

from __future__ import annotations

import json
import os

import pytest

from tests.installed import InstalledCoach

pytestmark = pytest.mark.cluster


def test_the_note_that_enter_would_work_agrees_with_slurm(user_coach: InstalledCoach) -> None:
    for _ in range(3):  # beside other tests a first plan can take longer than doctor waits
        done = user_coach("doctor", "--format", "json")
        checks = {(check["area"], check["what"]): check for check in json.loads(done.stdout)["checks"]}
        if ("launch", "sbatch --test-only") in checks:
            break
    assert done.returncode == 0, done.stdout
    for key in (
        ("slurm", "controller"),
        ("slurm", "queue"),
        ("launch", "sbatch --test-only"),
        ("roots", "runs"),
    ):
        assert checks[key]["state"] == "ok", checks[key]
    assert checks["slurm", "accounting"]["value"] == "none"
    assert "to start at" in checks["launch", "sbatch --test-only"]["because"]
    assert any(area == "gpus" for area, _ in checks)
    assert not (user_coach.user.home / "coach").exists()

    config = user_coach.user.home / "c" / "config.toml"
    config.parent.mkdir()
    os.chown(config.parent, user_coach.user.uid, user_coach.user.gid)
    config.write_text('[launch]\nsbatch = { licenses = "nothing:1" }\n')
    refused = user_coach("doctor", env={"COACH_HOME": str(config.parent)})
    assert refused.returncode == 1, refused.stdout
    assert "Invalid license specification" in refused.stdout
