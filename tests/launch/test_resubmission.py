"""The sbatch that submits a job again: what it asked for is asked for again, or it is said that it cannot
be."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.launch.resubmission import read_job, resubmit_command
from coach.model.errors import UserError

JOB = """JobId=17 JobName=train
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   Partition=gpu AllocNode:Sid=login1:7265
   Command=/home/ada/job.sh Partition=other TimeLimit=1 QOS=high
   WorkDir=/home/ada
"""


def options(more: str = "") -> tuple[str, ...]:
    return resubmit_command(read_job(JOB + more), "train", Path("job.sh"))


def test_arguments_of_the_script_are_not_taken_for_facts_of_the_job() -> None:
    assert options() == (
        *("sbatch", "--parsable", "--job-name=train", "--chdir=/home/ada", "--partition=gpu", "job.sh"),
        *("Partition=other", "TimeLimit=1", "QOS=high"),
    )


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        ("TresPerJob=gres/gpu:a100:2", "--gpus=a100:2"),
        ("TresPerJob=gres:gpu:2", "--gpus=2"),
        ("TresPerJob=gres/gpu:a100:2,gres/gpu:v100:1", "--gpus=a100:2,v100:1"),
        ("TresPerJob=gres/gpu:1g.5gb:1", "--gpus=1g.5gb:1"),
        ("TresPerTask=cpu=4,gres/gpu:1", "--gpus-per-task=1"),
        ("TresPerNode=gres/gpu:2,gres/shard:1", "--gres=gpu:2,shard:1"),
    ],
)
def test_gpus_are_asked_for_as_they_were(told: str, asked: str) -> None:
    assert asked in options(f"   {told}\n")


def test_a_job_whose_resources_cannot_be_asked_for_is_not_submitted_without_them() -> None:
    with pytest.raises(UserError, match="TresPerJob=gres/gpu:a100:2,gres/shard:1: only GPUs"):
        options("   TresPerJob=gres/gpu:a100:2,gres/shard:1\n")
    assert not any("gpus" in option for option in options("   TresPerTask=cpu=4\n"))
