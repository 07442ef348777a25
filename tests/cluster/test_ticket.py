"""A ticket on a real Slurm: of a run that coach launched, and of a job that it did not."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.cluster.test_whole_jobs import submit
from tests.installed import InstalledCoach

pytestmark = pytest.mark.cluster

TOKEN = "hf_AbCdEfGhIjKlMnOpQrSt"
FOREIGN = f"""#!/bin/bash
#SBATCH --job-name=vit
#SBATCH --time=0:05:00
module load cuda/12.4 2> /dev/null
export HF_TOKEN={TOKEN}
echo "cloning https://oauth2:{TOKEN}@git.example.org/me/vit.git"
python3 -c 'raise ValueError("11 classes, 10 expected")'
"""


def section(ticket: str, heading: str) -> str:
    """The text under a heading."""
    found = re.search(rf"(?ms)^## {heading}$(.*?)(?=^## |\Z)", ticket)
    assert found is not None, f"no {heading} in {ticket}"
    return found[1]


def test_a_ticket_describes_a_foreign_job_to_a_help_desk(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    first = submit(user_coach, "foreign", FOREIGN)
    slurm.wait_state(first, "FAILED", timeout_s=60)
    user_coach("why", first)
    job_id = submit(user_coach, "foreign", FOREIGN)
    slurm.wait_state(job_id, "FAILED", timeout_s=60)
    done = user_coach("ticket", job_id, "--save", "ticket.md", "--yes")
    assert done.returncode == 0, done.stderr
    file = user_coach.user.home / "ticket.md"
    told = file.read_text()
    assert (told, stat.S_IMODE(file.stat().st_mode)) == (done.stdout, 0o600)
    assert TOKEN not in told + done.stderr
    assert told.startswith(f"# Job {job_id}: FAILED\n")
    assert "COD001: ValueError: 11 classes, 10 expected" in section(told, "Verdict")
    assert "ValueError: 11 classes, 10 expected" in section(told, "Last error")
    assert re.search(r"submitted: +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d\n", section(told, "Times"))
    assert re.search(r"^node\d: ", section(told, "Nodes, as they are now"), re.MULTILINE)
    assert "module load cuda/12.4" in section(told, "Modules")
    assert "as Slurm keeps it" in section(told, "Script")
    assert "export HF_TOKEN=***" in section(told, "Script")
    assert f"JobId={job_id}" in section(told, "Slurm's record")
    assert f"{first}: FAILED" in section(told, "What was tried")


def test_a_ticket_of_a_failed_run_holds_its_launch(user_coach: InstalledCoach, train_python: Path) -> None:
    (user_coach.user.home / "train.py").write_text("raise ValueError('11 classes, 10 expected')\n")
    words = ("train.py", "--gpus", "0", "--time", "5:00", "--python", str(train_python), "--wait")
    launched = user_coach("launch", *words, "--format", "json", "--", f"--token={TOKEN}", timeout_s=120)
    assert launched.returncode == 1, launched.stderr
    told = user_coach("ticket").stdout
    assert TOKEN not in told
    assert "ValueError: 11 classes, 10 expected" in section(told, "Last error")
    assert "train.py '--token=***'" in section(told, "Script")
    assert "written by coach" in section(told, "Script")
    assert str(train_python) in section(told, "Environment")
    assert re.search(r"^names: node\d$", section(told, "Nodes, as they are now"), re.MULTILINE)
