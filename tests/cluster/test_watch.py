"""`coach watch`, and the job comment that a failed job writes, on a real Slurm."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.cluster.test_whole_jobs import submit
from tests.installed import InstalledCoach

pytestmark = pytest.mark.cluster

FAILS = "#!/bin/bash\npython3 -c 'raise ValueError(\"11 classes\")'\n"
TASKS = "#!/bin/bash\n#SBATCH --array=1-2\nif ((SLURM_ARRAY_TASK_ID == 2)); then exec no-such-program; fi\n"


def launch(coach: InstalledCoach, *options: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    (coach.user.home / "bad.py").write_text("raise ValueError('11 classes')\n")
    words = ("bad.py", "--gpus", "0", "--time", "5:00", "--format", "json", *options)
    done = coach("launch", *words, timeout_s=120, env=env)
    answer, _ = json.JSONDecoder().raw_decode(done.stdout)
    return dict(answer)


def comment_of(slurm: SlurmCluster, job_id: str) -> str:
    return slurm.run(["squeue", "--noheader", "--states=all", "--jobs", job_id, "--format=%k"]).stdout.strip()


def test_watch_follows_runs_jobs_and_arrays_to_their_ends(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    """A run of coach, a job that coach did not launch, and an array. Each gets its cause."""
    run_id = launch(user_coach)["run_id"]
    foreign, array = submit(user_coach, "foreign", FAILS), submit(user_coach, "array", TASKS)
    done = user_coach("watch", run_id, foreign, array, timeout_s=180)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line[0] != " "]
    names = {line.split("  ")[1] for line in lines if "FAILED" in line or "COMPLETED" in line}
    assert names == {run_id, foreign, f"{array}_1", f"{array}_2"}
    assert f"{run_id}  FAILED: it ended with ValueError" in done.stdout
    assert f"{foreign}  FAILED: it ended with ValueError" in done.stdout
    assert "no-such-program" in done.stdout
    assert f"{array}_1  COMPLETED" in done.stdout


def test_a_failed_job_appends_its_finding_to_its_comment_if_the_setting_is_on(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    asked = {"COACH_LAUNCH_SQUEUE_COMMENT": "true"}
    own = launch(user_coach, "--wait", "--sbatch", "comment=for Ada", env=asked)
    assert comment_of(slurm, own["job_id"]) == f"for Ada; coach {own['run_id']} COD001"
    bare = launch(user_coach, "--wait", env=asked)
    assert comment_of(slurm, bare["job_id"]) == f"coach {bare['run_id']} COD001"
    unasked = launch(user_coach, "--wait")
    assert comment_of(slurm, unasked["job_id"]) == "(null)"
    # Slurm changes the comment only while the job runs: that is why the job itself writes it.
    late = slurm.run(["scontrol", "update", f"JobId={unasked['job_id']}", "Comment=late"])
    assert "already finished" in late.stderr
