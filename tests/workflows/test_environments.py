"""Environments from the config to a relaunch: the one that trains, the notes in the plan, and the fix that
keeps it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from coach.config import LaunchDefaults, Settings
from coach.model.errors import UserError
from coach.model.judging.finding import Fix
from coach.model.launching.environment import Environment, EnvironmentKind
from coach.model.launching.launch import LaunchRequest, Plan
from coach.sources.io import SystemIo
from coach.sources.runs.run_files import read_run
from coach.workflows.launching.prepare import plan_for, with_defaults
from coach.workflows.launching.relaunch import request_for_fix
from coach.workflows.launching.start import written_run
from tests.launch.examples import CLUSTER

PYTORCH = Environment(
    EnvironmentKind.MODULES, name="pytorch", modules=("pytorch/2.6",), torch="2.6.0", variables={"A": "1"}
)
OLD = replace(PYTORCH, name="old", modules=("pytorch/1.13",), torch="1.13.1")


class Desk:
    """Settings as a site and a user leave them, and a place to plan from."""

    def __init__(self, root: Path) -> None:
        self.env = {"PATH": os.environ["PATH"], "HOME": str(root)}
        self.io = SystemIo(self.env)
        self.settings = Settings(
            root / "runs",
            root / "cache",
            root / "config",
            launch=LaunchDefaults(environment="pytorch", python=None),
            environments={"pytorch": PYTORCH, "old": OLD},
        )

    def plan(self, request: LaunchRequest, **defaults: str) -> Plan:
        settings = replace(self.settings, launch=replace(self.settings.launch, **defaults))
        request = with_defaults(request, settings)
        return plan_for(request, settings, self.env, self.io, CLUSTER, 1795271000.0)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_site_s_environment_is_the_default(desk: Desk) -> None:
    plan = desk.plan(LaunchRequest("ddp"))
    assert plan.environment == PYTORCH
    assert "module purge" in plan.script
    assert "export A=1" in plan.script
    assert any(
        note.startswith("environment pytorch (modules pytorch/2.6): torch 2.6.0") for note in plan.notes
    )
    assert plan.run_json["requires"] == {"torch": ">=2.6"}


def test_an_interpreter_of_the_config_belongs_to_the_config_s_environment(desk: Desk) -> None:
    assert "PYTHON=/bin/sh" in desk.plan(LaunchRequest("ddp"), python="/bin/sh").script
    asked_for = desk.plan(LaunchRequest("ddp", environment="modules=torch/2.7"), python="/bin/sh")
    assert "PYTHON=python3" in asked_for.script
    both = desk.plan(LaunchRequest("ddp", environment="modules=torch/2.7", python="/bin/cat"))
    assert "PYTHON=/bin/cat" in both.script


def test_a_launch_in_an_environment_whose_torch_is_too_old_is_refused(desk: Desk) -> None:
    with pytest.raises(UserError) as caught:
        desk.plan(LaunchRequest("ddp", environment="old"))
    assert caught.value.message == (
        "recipe ddp needs torch >=2.6: environment old (modules pytorch/1.13) has 1.13.1"
    )


@pytest.mark.parametrize("asked", ["pytorch", "modules=torch/2.7", None])
def test_a_fix_relaunches_in_the_same_environment_whatever_the_config_says_by_then(
    desk: Desk, asked: str | None
) -> None:
    plan = desk.plan(LaunchRequest("ddp", environment=asked))
    with written_run(plan, desk.settings, desk.io):
        pass
    parent = read_run(desk.io, Path(plan.run_dir))
    request = request_for_fix(parent, Fix("Smaller", {"lr": 0.001}), "NUM001")
    child = desk.plan(request, environment="old")
    assert child.environment == plan.environment
