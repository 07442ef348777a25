"""Launch a job again: as the same training, and with a reason if that is impossible."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from coach.launch.resubmission import submit_again
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.model.slurm.cluster import Job
from coach.model.slurm.job_action import JobAction, Step, Verb
from coach.sources.machine.user import user_name
from coach.sources.runs.seen_jobs import SeenJobs
from coach.workflows.jobs.job_actions import plan_action
from coach.workflows.launching.find_again import find_again
from coach.workflows.launching.resubmit import perform_resubmit, plan_resubmit
from tests.tui.fake_session import make_job
from tests.workflows.jobs.test_job_actions import MADE_S, NEXT_YEAR, RUN, TODAY, recorded
from tests.workflows.test_launching import World, queued, squeue_rows

DETAIL = "JobId=17 JobName=other\n   UserId=ada(1000)\n   BatchFlag=1\n   Command=(null)\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def planned(world: World, target: str) -> LaunchRequest | JobAction:
    return plan_resubmit(target, world.settings, world.env, world.io)


def test_a_reused_job_number_does_not_launch_the_old_run_again(world: World) -> None:
    recorded(world, state="COMPLETED", ended_time_s=MADE_S + 60, recipe="ddp", launch={"recipe": "ddp"})
    world.client("scontrol", f"printf '{DETAIL}'")
    world.client("squeue", queued("RUNNING", submitted=NEXT_YEAR))
    action = planned(world, "17")
    assert isinstance(action, JobAction)
    assert "--job-name=other" in action.steps[0].argv
    for answer in (
        queued("RUNNING", submitted=TODAY),
        "echo 'slurm_load_jobs error: Invalid job id' >&2; exit 1",
    ):
        world.client("squeue", answer)
        request = planned(world, "17")
        assert isinstance(request, LaunchRequest)
        assert request.parent_run_id == RUN
    world.client("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(UserError, match="Unable to contact"):
        planned(world, "17")
    assert isinstance(planned(world, RUN), LaunchRequest)  # the id of a run needs no question to Slurm


def test_a_script_that_cannot_be_saved_is_an_error_and_nothing_is_submitted(world: World) -> None:
    cache = world.root / "cache"
    cache.write_text("no directory")
    kept = str(cache / "resubmit" / "17.sh")
    action = JobAction(Verb.RESUBMIT, (Step(("sbatch", kept), ("17",)),), script="x", script_file=kept)
    with pytest.raises(UserError, match="cache"):
        perform_resubmit(action, world.env)
    assert not (world.root / "sbatch.args").exists()
    cache.unlink()
    assert perform_resubmit(action, world.env).notes[0] == "the new job is 17"


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        (".", "{root}/a b/my job.sh --lr 0.1"),
        ("a b", "my job.sh --lr 0.1"),
        ("a b", "../a b/my job.sh --lr 0.1"),
    ],
)
def test_a_script_whose_path_has_blanks_keeps_its_path_and_its_arguments(
    world: World, folder: str, command: str
) -> None:
    script = world.root / "a b" / "my job.sh"
    script.parent.mkdir()
    script.write_text("#!/bin/bash\nsleep 1\n")
    detail = DETAIL.replace("(null)", command.format(root=world.root))
    detail += f"   WorkDir={world.root / folder}\n"
    kept = script.read_text().replace("\n", "\\n")
    world.client("scontrol", f"case \"$1\" in show) printf '{detail}';; *) printf '{kept}';; esac")
    world.client("squeue", queued("RUNNING"))
    found = find_again("17", world.settings, world.env, world.io)
    argv = submit_again(found).steps[0].argv
    assert (Path(argv[-3]).resolve(), argv[-2:]) == (script, ("--lr", "0.1"))
    assert found.is_file_there


def squeue_of(states: dict[int, str], submitted: str = "") -> str:
    """A squeue that lists these tasks of array 17."""
    user = user_name()
    return squeue_rows(
        "\n".join(
            f"17_{task}|{100 + task}|{user}|{state}|{submitted}|10:00|0:05|1|1|None|train"
            for task, state in states.items()
        )
    )


def array_of(world: World, planned: LaunchRequest | JobAction) -> str:
    """The tasks in the sbatch line, and those that the question names."""
    assert isinstance(planned, JobAction)
    (option,) = [word for word in planned.steps[0].argv if word.startswith("--array=")]
    return f"{option} {planned.job_ids[0]} {' '.join(job.state for job in planned.jobs)}"


STATES = {0: "COMPLETED", 3: "FAILED", 5: "RUNNING", 7: "OUT_OF_MEMORY"}


def test_exactly_the_named_tasks_of_an_array_are_submitted_again(world: World) -> None:
    world.client("scontrol", f"printf 'ArrayTaskThrottle=2 {DETAIL}'")
    world.client("squeue", squeue_of(STATES))

    def plan(target: str, only_failed: bool | None = False) -> str:
        again = plan_resubmit(target, world.settings, world.env, world.io, only_failed=only_failed)
        return array_of(world, again)

    assert plan("17_[0,5]") == "--array=0,5 17_[0,5] COMPLETED RUNNING"
    assert plan("17_3") == "--array=3 17_3 FAILED"
    assert plan("17_[0-7:7,3%1]") == "--array=0,3,7%1 17_[0,3,7%1] COMPLETED FAILED OUT_OF_MEMORY"
    assert plan("17") == "--array=0,3,5,7%2 17_[0,3,5,7%2] COMPLETED FAILED RUNNING OUT_OF_MEMORY"
    assert plan("17", only_failed=True) == "--array=3,7 17_[3,7] FAILED OUT_OF_MEMORY"
    assert plan("17", only_failed=None) == plan("17", only_failed=True)
    assert plan("17_[0,3]", only_failed=None) == "--array=0,3 17_[0,3] COMPLETED FAILED"
    assert plan("17_[0,3]", only_failed=True) == "--array=3 17_3 FAILED"
    found = find_again("17", world.settings, world.env, world.io)
    assert found.value("array") == "3,7"
    assert "--array=0" in submit_again(found, {"array": "0"}).steps[0].argv
    with pytest.raises(UserError, match="none of these tasks is known to have failed"):
        plan("17_0", only_failed=True)
    for mistyped in ("17_[3,x]", "17_[3", "17_[2-3],7", "17_[abc]"):
        with pytest.raises(UserError, match="not a list of tasks"):
            plan(mistyped)
        with pytest.raises(UserError, match="not a list of tasks"):
            plan_action(Verb.CANCEL, (mistyped,), world.settings, world.env, world.io)


def test_only_an_array_has_failed_tasks(world: World) -> None:
    world.client("scontrol", f"printf '{DETAIL}'")
    world.client("squeue", queued("FAILED"))
    with pytest.raises(UserError, match="it is no array"):
        plan_resubmit("17", world.settings, world.env, world.io, only_failed=True)
    with pytest.raises(UserError, match="it is no array"):
        planned(world, "17_3")


def test_tasks_that_are_runs_of_coach_are_not_submitted_as_an_array(world: World) -> None:
    recorded(world, job_id="17_3", state="FAILED", recipe="ddp", launch={"recipe": "ddp"})
    world.client("scontrol", f"printf '{DETAIL}'")
    world.client("squeue", squeue_of(STATES, TODAY))
    with pytest.raises(UserError, match="each is a run") as refused:
        planned(world, "17")
    assert refused.value.hint == f"coach resubmit {RUN}"


def seen(world: World, *jobs: Job) -> None:
    """Jobs that coach saw in the queue a moment ago."""
    SeenJobs(world.settings.cache_dir).remember(jobs, user_name(), MADE_S)


def script_of(world: World) -> Path:
    script = world.root / "job.sh"
    script.write_text("#!/bin/bash\nsleep 1\n")
    return script


def forgets(world: World) -> None:
    for client in ("squeue", "scontrol", "sacct"):
        world.client(client, "echo 'Invalid job id specified' >&2; exit 1")


def test_a_job_that_slurm_has_forgotten_is_submitted_again_as_coach_saw_it(world: World) -> None:
    script = script_of(world)
    forgets(world)
    job = replace(
        make_job("17", user_name(), num_gpus=2, num_nodes=1),
        command=f"{script} --lr 0.1",
        work_dir="/home/ada",
        time_limit_s=600,
    )
    with pytest.raises(UserError, match="coach has not seen it in the queue") as unknown:
        planned(world, "17")
    assert unknown.value.hint == "submit its script yourself: sbatch SCRIPT"
    seen(world, job)
    found = find_again("17", world.settings, world.env, world.io)
    argv = submit_again(found, {"mem": "8G"}).steps[0].argv
    assert argv[-3:] == (str(script), "--lr", "0.1")
    assert {"--chdir=/home/ada", "--time=00:10:00", "--mem=8G", "--gpus-per-node=2"} <= set(argv)
    assert any("Slurm has forgotten the job" in note for note in found.notes)
    script.write_text("#!/bin/bash\n#SBATCH --gpus=2\n")
    argv = submit_again(find_again("17", world.settings, world.env, world.io)).steps[0].argv
    assert not any("gpus" in word for word in argv)
    script.unlink()
    with pytest.raises(UserError, match="its batch script is not available any more: submit your own copy"):
        planned(world, "17")


def test_a_command_too_long_to_be_kept_is_not_run_with_fewer_arguments(world: World) -> None:
    script = script_of(world)
    forgets(world)
    seen(world, replace(make_job("17", user_name()), command=f"{script} " + "x " * 4000))
    with pytest.raises(UserError, match="its batch script is not available any more"):
        planned(world, "17")


def test_tasks_that_slurm_has_forgotten_are_submitted_again_with_the_rest_of_their_array(
    world: World,
) -> None:
    command = str(script_of(world))
    tasks = {0: "COMPLETED", 1: "FAILED", 2: "RUNNING"}
    rows = [
        replace(make_job(f"17_{task}", user_name(), state=state, name="train"), command=command)
        for task, state in tasks.items()
    ]
    seen(world, *rows)
    world.client("scontrol", f"printf '{DETAIL}'")
    world.client("squeue", squeue_of({2: "RUNNING"}, TODAY))
    again = plan_resubmit("17", world.settings, world.env, world.io, only_failed=True)
    assert array_of(world, again) == "--array=1 17_1 FAILED"
    assert array_of(world, planned(world, "17")).startswith("--array=0-2 ")
    forgets(world)
    again = plan_resubmit("17_[1,2]", world.settings, world.env, world.io)
    assert array_of(world, again) == "--array=1-2 17_[1-2] FAILED RUNNING"
    assert any("how task 2 of it ended is not known" in note for note in again.notes)


def test_a_job_that_only_accounting_knows_is_submitted_again_by_its_line(world: World) -> None:
    script = script_of(world)
    forgets(world)
    history = {"JobID": "17", "JobIDRaw": "17", "User": user_name(), "State": "FAILED", "Partition": "gpu"}
    history |= {"NNodes": "1", "WorkDir": str(world.root), "JobName": "bert", "TimelimitRaw": "10"}
    history |= {"SubmitLine": "sbatch -N 1 -o job.out job.sh --lr 1"}
    (world.root / "job.out").write_text("the output of an earlier job")
    (world.root / "sacct.py").write_text(
        f"import sys\nrow, words = {json.dumps(history)}, sys.argv\n"
        "if '-B' in words: sys.exit('no script')\n"
        "fields, end = words[words.index('-o') + 1].split(','), words[words.index('--delimiter') + 1]\n"
        "print(''.join(row.get(field, '') + end for field in fields))\n"
    )
    world.client("sacct", f'exec {sys.executable} {world.root}/sacct.py "$@"')
    planned_again = planned(world, "17")
    assert isinstance(planned_again, JobAction)
    argv = planned_again.steps[0].argv
    assert argv[-3:] == (str(script), "--lr", "1")
    assert {"--job-name=bert", "--partition=gpu", "--time=00:10:00", f"--chdir={world.root}"} <= set(argv)
