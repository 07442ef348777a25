"""A training that hangs on two real nodes: coach names the rank that holds up the others, even if it may not
look into any process."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.train]

HANG = """\
import os, time, torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if dist.get_rank() == 1 and index == 3:
            time.sleep(600)
        return torch.ones(4)

dist.init_process_group("gloo")
for batch in DataLoader(Samples()):
    dist.all_reduce(batch)
    print("step", flush=True)
"""

JOB = """\
export HOME={home} OMP_NUM_THREADS=1 PATH={without_ptrace}:$PATH
srun {before} {python} -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d \
  --rdzv-endpoint=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1):$((21000 + SLURM_JOB_ID % 9000)) hang.py
"""

REFUSING = """\
#!/bin/sh
# In a user namespace of its own, the real py-spy may trace no process outside: the kernel refuses, as it does where a site forbids ptrace.
exec unshare --user {py_spy} "$@"
"""


def hang(slurm: SlurmCluster, coach: InstalledCoach, before: str) -> tuple[str, str]:
    """Start the training on two nodes and wait until every rank but one waits for that one. Returns the job,
    and the reason why py-spy cannot see it."""
    home = coach.user.home
    (home / "hang.py").write_text(HANG)
    folder = home / "without-ptrace"
    folder.mkdir(mode=0o755)
    own = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if own is not None:
        shutil.copy(own, folder / "real")
        (folder / "py-spy").write_text(REFUSING.format(py_spy=folder / "real"))
        for program in folder.iterdir():
            program.chmod(0o755)
    script = JOB.format(home=home, without_ptrace=folder, before=before, python=coach.python)
    job_id = slurm.submit(script, "-N2", "--ntasks-per-node=1", "-D", str(home), "-o", "out.txt")
    wait_until(
        lambda: (home / "out.txt").exists() and (home / "out.txt").read_text().count("step") == 6,
        60,
        "a hang",
    )
    return job_id, "ptrace is refused here" if own else "not installed on this node"


def test_with_one_word_before_the_command_a_hang_on_two_nodes_names_its_odd_rank_although_ptrace_is_refused(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    coach_run = f"{user_coach.python} -m coach.node run --"
    job_id, because = hang(slurm, user_coach, coach_run)
    told = user_coach("stacks", job_id, "--yes", "--format", "json")
    assert told.returncode == 0, told.stderr
    assert f"srun --jobid={job_id} --overlap --nodes=2 --ntasks=2" in told.stderr
    value = json.loads(told.stdout)
    assert value["summary"] == "rank 0 waits in all_reduce; rank 1 is in DataLoader.__next__"
    assert value["odd_ranks"] == [1]
    ranks = {rank["rank"]: rank for rank in value["ranks"]}
    assert {rank["rung"] for rank in ranks.values()} == {"faulthandler"}
    assert {rank["missed"][0]["because"].partition(" (")[0] for rank in ranks.values()} == {because}
    assert {rank["node"] for rank in ranks.values()} == {"node1", "node2"}
    kept = Path(value["folder"])
    assert {path.name for path in kept.iterdir()} == {"node1.json", "node2.json", "summary.txt"}
    assert kept.parent.name == "stacks"
    assert kept.parents[1].parent == user_coach.user.home / "coach" / "runs"
    assert slurm.job_state(job_id) == "RUNNING"
    assert "coach-stacks" not in slurm.run(["squeue", "--steps", "--noheader", "--format=%j"]).stdout


def test_a_foreign_job_is_entered_only_after_a_question_and_the_kernel_names_the_sleeping_rank(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    job_id, because = hang(slurm, user_coach, "")
    asked = user_coach("stacks", job_id)
    assert asked.returncode == 2
    assert f"to be confirmed: srun --jobid={job_id} --overlap" in asked.stderr
    assert "coach did not launch" in asked.stderr
    told = user_coach("stacks", job_id, "--yes")
    assert told.returncode == 0, told.stderr
    first, second = told.stdout.splitlines()[:2]
    assert first.startswith("rank 0 waits for something (futex")
    assert "; rank 1 is in a sleep call of its own (" in first
    assert second.startswith("not where the others are: rank 1 (node")
    assert f"seen by /proc (not by py-spy: {because}" in told.stdout
    assert "faulthandler: the process was not started below `coach run`" in told.stdout
