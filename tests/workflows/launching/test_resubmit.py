"""Launch a job again: as the same training, and with a reason if that is impossible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.launch.resubmission import submit_again
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.model.slurm.job_action import JobAction, Step, Verb
from coach.sources.machine.user import user_name
from coach.workflows.launching.find_again import find_again
from coach.workflows.launching.resubmit import perform_resubmit, plan_resubmit
from tests.tui.fake_session import make_job
from tests.workflows.jobs.test_job_actions import MADE_S, NEXT_YEAR, RUN, TODAY, recorded
from tests.workflows.test_launching import World, queued

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


def test_the_failed_tasks_of_an_array_are_the_ones_to_run_again(world: World) -> None:
    world.client("scontrol", f"printf '{DETAIL}'")
    states = {0: "COMPLETED", 3: "FAILED", 5: "RUNNING", 7: "OUT_OF_MEMORY"}
    rows = (queued(state).replace("$6", f"17_{task}", 1) for task, state in states.items())
    world.client("squeue", "\n".join(rows).replace("$6", "17"))
    found = find_again("17_3", world.settings, world.env, world.io)
    assert found.tasks == found.value("array") == "3,7"
    assert "--array=3,7" in submit_again(found, {"array": found.tasks}).steps[0].argv


def test_a_job_that_slurm_has_forgotten_is_submitted_again_by_the_file_of_its_command(world: World) -> None:
    script = world.root / "job.sh"
    script.write_text("#!/bin/bash\nsleep 1\n")
    for client in ("squeue", "scontrol", "sacct"):
        world.client(client, "echo 'Invalid job id specified' >&2; exit 1")
    job = replace(make_job("17", user_name()), command=str(script), work_dir="/home/ada", time_limit_s=600)
    found = find_again("17", world.settings, world.env, world.io, job)
    argv = submit_again(found, {"mem": "8G"}).steps[0].argv
    assert argv[-1] == str(script)
    assert {"--chdir=/home/ada", "--time=00:10:00", "--mem=8G"} <= set(argv)
    assert any("Slurm has forgotten the job" in note for note in found.notes)
    others = replace(job, user="somebody-else")
    with pytest.raises(UserError, match="Invalid job id"):
        find_again("17", world.settings, world.env, world.io, others)
    script.unlink()
    with pytest.raises(UserError, match="its batch script is not available any more"):
        find_again("17", world.settings, world.env, world.io, job)
