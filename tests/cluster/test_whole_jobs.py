"""Jobs of several parts on a real Slurm, named by their one number; and logs that only their script knows."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach

pytestmark = pytest.mark.cluster

ARRAY = """#!/bin/bash
case $SLURM_ARRAY_TASK_ID in
1|3) python3 -c 'import a_module_that_nobody_has';;
2) python3 -c 'raise ValueError("its own way")';;
*) echo fine;;
esac
"""
HETEROGENEOUS = """#!/bin/bash
#SBATCH -n1
#SBATCH hetjob
#SBATCH -n1
srun --het-group=0,1 true
python3 -c 'import a_module_that_nobody_has'
"""
STEP = """#!/bin/bash
OUT=%s/elsewhere
mkdir -p steps $OUT
srun -n1 -o steps/train-%%t.log python3 -c 'import a_module_that_nobody_has'
python3 -c 'print("loss: 0.5")' > $OUT/eval.txt
exit 1
"""


def submit(coach: InstalledCoach, name: str, script: str, *options: str) -> str:
    """sbatch of a script in a directory of its own."""
    folder = coach.user.home / name
    subprocess.run(coach.user.argv(["mkdir", "-p", folder]), env=coach.env(), check=True)
    keep = coach.user.argv(["tee", folder / "job.sh"])
    subprocess.run(keep, env=coach.env(), input=script, text=True, check=True, capture_output=True)
    argv = coach.user.argv(["sbatch", "--parsable", "-J", name, *options, "job.sh"])
    done = subprocess.run(argv, env=coach.env(), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def check(coach: InstalledCoach, job_id: str) -> dict[str, object]:
    done = coach("check", job_id, "--format", "json")
    assert done.returncode == 1, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_an_array_a_heterogeneous_job_and_a_step_s_own_log_are_judged_by_the_jobs_number(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    home = user_coach.user.home
    array = submit(user_coach, "array", ARRAY, "-a", "1-4")
    het = submit(user_coach, "het", HETEROGENEOUS)
    step = submit(user_coach, "step", STEP % home)
    for task, state in (("1", "FAILED"), ("2", "FAILED"), ("3", "FAILED"), ("4", "COMPLETED")):
        slurm.wait_state(f"{array}_{task}", state, timeout_s=40)
    for job_id in (f"{het}+0", step):
        slurm.wait_state(job_id, "FAILED", timeout_s=40)

    whole = check(user_coach, array)
    assert (whole["target"], whole["state"]) == (array, "FAILED")
    told = [(finding["rule"], finding["primary"], finding["summary"]) for finding in whole[("findings")]]  # type: ignore[attr-defined]
    assert [(rule, is_primary) for rule, is_primary, _ in told] == [("ENV007", True), ("COD001", False)]
    assert told[0][2].startswith(f"2 of 4 ({array}_1, {array}_3): ")
    assert told[1][2].startswith(f"1 of 4 ({array}_2): ")
    assert len(whole["jobs"]) == 4  # type: ignore[arg-type]
    text = user_coach("check", array).stdout
    assert "parts: 3 FAILED, 1 COMPLETED" in text
    assert f"healthy: {array}_4" in text

    both = check(user_coach, het)
    assert [finding["rule"] for finding in both["findings"]] == ["ENV007"]  # type: ignore[attr-defined]

    found = check(user_coach, step)
    assert [finding["rule"] for finding in found["findings"]][:1] == ["ENV007"]  # type: ignore[attr-defined]
    assert {file["path"] for file in found["files"]} == {  # type: ignore[attr-defined]
        f"{home}/step/slurm-{step}.out",
        f"{home}/step/steps/train-0.log",
        f"{home}/elsewhere/eval.txt",
    }


def test_the_third_failure_of_one_script_is_known_as_the_third_though_the_logs_of_the_others_are_gone(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    script = "#!/bin/bash\npython3 -c 'import a_module_that_nobody_has'\n"
    told = []
    for _ in range(3):
        job_id = submit(user_coach, "again", script)
        slurm.wait_state(job_id, "FAILED", timeout_s=40)
        told.append([finding["rule"] for finding in check(user_coach, job_id)[("findings")]])  # type: ignore[attr-defined]
        log = user_coach.user.home / "again" / f"slurm-{job_id}.out"
        subprocess.run(user_coach.user.argv(["rm", log]), env=user_coach.env(), check=True)
    assert told == [["ENV007"], ["ENV007"], ["ENV007", "HIS001"]]
