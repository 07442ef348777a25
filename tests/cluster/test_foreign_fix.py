"""A job that coach did not launch, on a real Slurm: its own script comes back as a diff, and is not written
over."""

from __future__ import annotations

import json

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.cluster.test_whole_jobs import submit
from tests.installed import InstalledCoach
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

SCRIPT = """#!/bin/bash
#SBATCH --mem=100M
#SBATCH --comment="a \x1b[31mred\x1b[0m word"
BATCH=32
cat > train.py <<'END'
import sys
sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB"
    " of which 1.12 GiB is free. Of the allocated memory 8.00 GiB is allocated by PyTorch, and 4.00 GiB is reserved by PyTorch"
    " but unallocated.")
END
python3 train.py --per_device_train_batch_size $BATCH
"""


def test_the_script_of_a_failed_job_is_shown_as_it_would_have_to_be_and_stays_as_it_is(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    job_id = submit(user_coach, "foreign", SCRIPT)
    slurm.wait_state(job_id, "FAILED", timeout_s=40)
    done = user_coach("fix", job_id)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == (
        f"script: as Slurm keeps it (scontrol write batch_script {job_id} -), Hugging Face Trainer"
    )
    for line in (
        "-BATCH=32",
        "+BATCH=16",
        "+python3 train.py --per_device_train_batch_size $BATCH --gradient_accumulation_steps 2",
        "+export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "nothing was written: change the script yourself",
    ):
        assert line in lines
    assert "\x1b" not in done.stdout
    assert (user_coach.user.home / "foreign" / "job.sh").read_text() == SCRIPT

    told = json.loads(user_coach("fix", job_id, "mem001", "--format", "json").stdout)
    assert (told["job_id"], told["framework"]) == (job_id, "Hugging Face Trainer")
    first = told["fixes"][0]
    assert first["changes"] == {"batch_size": 16, "gradient_accumulation": 2}
    assert "+BATCH=16" in first["diff"].splitlines()

    refused = user_coach("fix", job_id, "GPU005")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[0] == f"coach: job {job_id}: no fix was found for GPU005"


GOES_ON = """#!/bin/bash
#SBATCH --mem=100M
python3 - <<'END'
import io, zipfile
whole = io.BytesIO()
with zipfile.ZipFile(whole, "w") as archive:
    archive.writestr("model/data.pkl", b"x" * 5000)
open("model_step_40.pt", "wb").write(whole.getvalue())
open("model_step_80.pt", "wb").write(whole.getvalue()[:-300])
import sys
print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB"
    " of which 1.12 GiB is free. Of the allocated memory 8.00 GiB is allocated by PyTorch, and 4.00 GiB is reserved by PyTorch"
    " but unallocated.", file=sys.stderr)
END
sleep 600
"""


def test_a_fix_of_a_running_job_shows_the_lost_work_and_torn_checkpoints(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    job_id = submit(user_coach, "goes-on", GOES_ON)
    slurm.wait_state(job_id, "RUNNING", timeout_s=40)

    def told() -> str:
        text = user_coach("fix", job_id, "MEM001").stdout
        return text if "incomplete: " in text else ""

    lines = wait_until(told, what="both checkpoints, and the finding").splitlines()
    place = lines.index("if you cancel it now:")
    assert lines[place + 1].startswith("  lost: ")
    assert "since the newest complete checkpoint, model_step_40.pt (PyTorch, step 40)" in lines[place + 1]
    assert lines[place + 2] == "  incomplete: model_step_80.pt (PyTorch, step 80): its end is missing"
    assert "+export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in lines
