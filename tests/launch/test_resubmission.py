"""The sbatch that submits a job again: it repeats the job's request, or coach explains why that is
impossible."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.launch.resubmission import Resubmission, read_job, resubmit_command, submit_again
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
    arguments = ("Partition=other", "TimeLimit=1", "QOS=high")
    assert resubmit_command(read_job(JOB), "train", Path("job.sh"), arguments=arguments) == (
        *("sbatch", "--parsable", "--job-name=train", "--chdir=/home/ada", "--partition=gpu", "job.sh"),
        *arguments,
    )


def test_a_job_that_asked_for_all_of_a_node_s_memory_gets_all_of_it_again() -> None:
    assert "--mem=0" in options("   MinMemoryNode=0 MinTmpDiskNode=0\n")
    assert "--mem=0" in again({"mem": "0"}, "   MinMemoryNode=0\n")
    assert not any("mem" in option for option in options("   MinMemoryCPU=0\n"))


def test_gpus_per_socket_are_requested_with_the_sockets_that_sbatch_wants() -> None:
    told = "   Socks/Node=2 NtasksPerN:B:S:C=0:0:*:* CoreSpec=*\n   TresPerSocket=gres:gpu:1\n"
    assert {"--gpus-per-socket=1", "--sockets-per-node=2"} <= set(options(told))
    assert not any("socket" in option for option in options("   Socks/Node=* CoreSpec=*\n"))


def again(changes: dict[str, str], more: str = "") -> tuple[str, ...]:
    facts = read_job(JOB + more)
    found = Resubmission("17", "train", facts, "#!/bin/sh\n", Path("job.sh"), True, (), 12.0)
    return submit_again(found, changes).steps[0].argv


def test_time_memory_nodes_and_tasks_can_be_changed_on_the_line_of_sbatch() -> None:
    argv = again({"time": "1:30:00", "mem": "8G", "exclude": "n1,n[3-5]", "array": "3,7"})
    for option in ("--time=01:30:00", "--mem=8G", "--exclude=n1,n[3-5]", "--array=3,7", "--partition=gpu"):
        assert option in argv


def test_a_changed_memory_of_the_node_takes_the_place_of_that_of_a_cpu() -> None:
    per_cpu = "   MinMemoryCPU=2G\n"
    assert "--mem-per-cpu=2G" in again({"mem": ""}, per_cpu)
    changed = again({"mem": "8G"}, per_cpu)
    assert "--mem=8G" in changed
    assert not any("per-cpu" in option for option in changed)


def test_a_script_with_memory_per_cpu_takes_a_changed_memory_of_the_node() -> None:
    script = "#!/bin/sh\n#SBATCH --time=5 --mem-per-cpu=2G\n#SBATCH --gres=gpu:1\ntrue\n"
    facts, kept = read_job(JOB), Path("/cache/17.sh")
    found = Resubmission("17", "train", facts, script, Path("job.sh"), True, (), 12.0, "", kept)
    same, changed = submit_again(found), submit_again(found, {"mem": "8G"})
    assert (same.script, same.script_file) == (script, None)
    assert changed.script == "#!/bin/sh\n#SBATCH --time=5\n#SBATCH --gres=gpu:1\ntrue\n"
    assert changed.script_file == "/cache/17.sh"
    assert changed.notes == ("a copy of the script is submitted, without its memory per CPU or GPU",)
    assert {"--mem=8G", "/cache/17.sh"} <= set(changed.steps[0].argv)


def test_resources_per_gpu_are_requested_again_without_the_defaults_that_slurm_reports() -> None:
    told = (
        "   NumTasks=4 CPUs/Task=1 ReqB:S:C:T=0:0:*:*\n   NtasksPerN:B:S:C=2:0:*:* CoreSpec=*\n"
        "   MinCPUsNode=1 MinMemoryCPU=1000M MinTmpDiskNode=0\n"
        "   CpusPerTres=gres:gpu:4\n   MemPerTres=gres:gpu:3072\n   TresPerNode=gres:gpu:1\n"
    )
    assert set(options(told)) - set(options()) == {
        *("--ntasks=4", "--ntasks-per-node=2", "--cpus-per-gpu=4", "--mem-per-gpu=3072M"),
        "--gpus-per-node=1",
    }


def test_gpus_that_the_script_requests_by_gres_are_not_requested_twice() -> None:
    facts = read_job(JOB + "   TresPerNode=gres:gpu:1,gres:gpu:2\n")
    script = "#!/bin/sh\n#SBATCH --gres=gpu:2\n"
    argv = resubmit_command(facts, "train", Path("job.sh"), None, script)
    assert "--gres=gpu:2" in argv
    assert not any("gpus" in option for option in argv)


@pytest.mark.parametrize(
    ("option", "text"), [("time", "soon"), ("mem", "much"), ("exclude", "n1; rm"), ("array", "all")]
)
def test_a_text_that_sbatch_would_refuse_is_refused_with_a_correct_example(option: str, text: str) -> None:
    with pytest.raises(UserError) as refused:
        again({option: text})
    assert "expected" in refused.value.message + (refused.value.hint or "")
    assert text in refused.value.message


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
    with pytest.raises(
        UserError, match="TresPerJob=gres/gpu:a100:2,gres/shard:1: coach can request only GPUs"
    ):
        options("   TresPerJob=gres/gpu:a100:2,gres/shard:1\n")
    assert not any("gpus" in option for option in options("   TresPerTask=cpu=4\n"))


def test_a_resubmission_repeats_all_requests_of_the_job() -> None:
    facts = (
        "Account=lab QOS=long Reservation=day TimeLimit=02:00:00 NumNodes=2 NumTasks=8 CPUs/Task=4\n"
        "   MinMemoryNode=64G Features=hbm ReqNodeList=n[1-2] ExcNodeList=bad1 Licenses=matlab:1\n"
    )
    script_s_own = options()
    asked = set(options(f"   {facts}")) - set(script_s_own)
    assert asked == {
        *("--account=lab", "--qos=long", "--reservation=day", "--time=02:00:00", "--nodes=2", "--ntasks=8"),
        *("--cpus-per-task=4", "--mem=64G", "--constraint=hbm", "--nodelist=n[1-2]", "--exclude=bad1"),
        "--licenses=matlab:1",
    }
