"""A running job is entered only after everything that could harm it was checked."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from coach import runs
from coach.model.errors import UserError
from coach.model.slurm.job_action import JobAction
from coach.sources.machine.user import user_name
from coach.workflows.jobs.attach import begin_attach, plan_attach
from tests.sources.scripted_io import captured
from tests.workflows.test_launching import World, queued


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.client("squeue", queued("RUNNING"))
    world.client("srun", "echo slurm-wlm 22.05.8")
    world.client("sstat", "echo '17.0|2|100M|'")
    allocation_is(world, captured("allocation-two-nodes-22.05.txt").decode())
    return world


def allocation_is(world: World, text: str) -> None:
    world.client("scontrol", f"cat <<'END'\n{text}END")


def planned(world: World) -> JobAction:
    return plan_attach("17", world.settings, world.env, world.io, sys.executable)


def test_the_question_shows_the_whole_command_its_cost_and_the_memory_left(world: World) -> None:
    action = planned(world)
    (command,) = action.commands
    assert command.startswith("srun --jobid=17 --overlap --nodes=2 --ntasks=2 ")
    assert command.endswith("/coach/node sample --stream")
    assert "one job step and one row in the accounting" in action.notes[0]
    assert action.notes[1].startswith("500 MiB of the job's 600 are left at least")
    assert not world.settings.runs_root.exists()
    begin_attach(world.settings)
    assert Path(action.steps[0].argv[-3], "sample.py").exists()


def test_unknown_memory_is_a_note_and_short_memory_is_a_refusal(world: World) -> None:
    world.client("sstat", "echo 'sstat: error: no steps running for job 17' >&2; exit 1")
    assert "is not known (sstat: no steps running for job 17)" in planned(world).notes[1]
    world.client("sstat", "echo '17.0|2|450M|'")
    with pytest.raises(UserError, match="up to 450 of the 600 MiB") as refused:
        planned(world)
    assert refused.value.hint is not None
    assert "200 MiB must be left" in refused.value.hint


def test_before_22_05_it_is_off_and_says_what_to_do(world: World) -> None:
    world.client("srun", "echo slurm 21.08.8")
    with pytest.raises(UserError, match=r"Slurm 21\.08\.8: before 22\.05") as refused:
        planned(world)
    assert "coach run -- COMMAND" in (refused.value.hint or "")


@pytest.mark.parametrize("job_id", ["17", "17_1"])
def test_a_run_whose_sampler_writes_is_not_measured_twice(world: World, job_id: str) -> None:
    world.client("squeue", queued("RUNNING").replace("$6", job_id, 1))
    paths = runs.create_run_dir(world.settings.runs_root, "20261121-142233-ddp-4f2a")
    made = {
        "backend": "slurm",
        "job_id": job_id,
        "user": user_name(),
        "created_time_s": 1.0,
        "state": "RUNNING",
    }
    runs.write_json(paths.run_json, made)
    assert planned(world).steps
    paths.telemetry_dir.mkdir(exist_ok=True)
    paths.telemetry_of("node1").write_text("")
    with pytest.raises(UserError, match="a sampler runs beside the training already"):
        planned(world)


def test_a_foreign_job_a_waiting_job_and_a_read_only_coach_are_refused(world: World) -> None:
    world.client("squeue", queued("PENDING"))
    with pytest.raises(UserError, match="only a running job has an allocation to look into"):
        planned(world)
    world.client("squeue", queued("RUNNING", user="grace"))
    with pytest.raises(UserError, match="grace"):
        planned(world)
    world.settings = replace(world.settings, is_readonly=True)
    with pytest.raises(UserError, match="starts no step in a job"):
        planned(world)
