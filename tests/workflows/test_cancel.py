"""Cancel the right job, and leave a record that is true: what a number, and what run.json's last word, are worth."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from coach import runs
from coach.model.errors import UserError
from coach.sources.user import user_name
from coach.workflows.cancel import HasEnded, cancel, plan_cancel
from tests.workflows.test_launching import World

RUN = "20261121-142233-ddp-4f2a"
MADE_S = 1795271000.0
TODAY, NEXT_YEAR = "2026-11-21T15:00:00", "2027-11-21T15:00:00"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def recorded(world: World, run_id: str = RUN, **changes: object) -> runs.RunPaths:
    paths = runs.create_run_dir(world.settings.runs_root, run_id)
    record = {"backend": "slurm", "job_id": "17", "user": user_name(), "created_time_s": MADE_S}
    runs.write_json(paths.run_json, {**record, "state": "RUNNING", "started_time_s": MADE_S + 5, **changes})
    return paths


def queue_says(world: World, state: str, submitted: str = TODAY) -> None:
    world.client("squeue", f"echo '{state} {user_name()} {submitted}'")


def test_a_requeued_run_that_waits_again_is_recorded_as_cancelled_although_it_once_ran(world: World) -> None:
    paths = recorded(world)
    queue_says(world, "PENDING")
    cancel(plan_cancel(RUN, world.settings, world.env, world.io), world.env, 5.0)
    assert (world.root / "scancel.args").read_text().strip() == "17"
    assert runs.read_json(paths.run_json)["state"] == "CANCELLED"


def test_a_run_whose_script_runs_says_itself_how_it_ended(world: World) -> None:
    paths = recorded(world)
    queue_says(world, "RUNNING")
    cancel(plan_cancel(RUN, world.settings, world.env, world.io), world.env, 5.0)
    assert runs.read_json(paths.run_json)["state"] == "RUNNING"


def test_a_run_that_is_over_does_not_cost_the_job_that_has_its_number_now(world: World) -> None:
    recorded(world, state="COMPLETED", ended_time_s=MADE_S + 60)
    queue_says(world, "RUNNING", NEXT_YEAR)
    with pytest.raises(UserError, match="17 is the number of another one now"):
        plan_cancel(RUN, world.settings, world.env, world.io)
    assert plan_cancel("17", world.settings, world.env, world.io).run_dir is None


def test_a_run_of_another_cluster_with_the_same_home_is_not_cancelled_here(world: World) -> None:
    recorded(world, cluster="tiger")
    settings = replace(world.settings, cluster="della")
    queue_says(world, "RUNNING")
    with pytest.raises(UserError, match="it is job 17 of cluster tiger, and this is della"):
        plan_cancel(RUN, settings, world.env, world.io)
    assert plan_cancel("17", settings, world.env, world.io).run_dir is None


def test_of_two_runs_with_one_number_the_job_is_that_of_the_newest(world: World) -> None:
    recorded(world)
    newer = recorded(world, "20271121-142233-ddp-4f2b", created_time_s=MADE_S + 31_536_000)
    queue_says(world, "PENDING", NEXT_YEAR)
    assert plan_cancel("17", world.settings, world.env, world.io).run_dir == str(newer.run_dir)


def test_a_local_run_that_said_its_end_before_its_supervisor_died_has_ended_as_it_said(world: World) -> None:
    supervisor = {"pid": 2**22 - 3, "create_time_s": 1.0, "node": os.uname().nodename}
    paths = recorded(world, backend="local", supervisor=supervisor)
    runs.write_json(paths.exit_json, {"state": "COMPLETED", "ended_time_s": MADE_S + 9})
    with pytest.raises(HasEnded, match=r"it has ended already \(COMPLETED\)"):
        plan_cancel(RUN, world.settings, world.env, world.io)
