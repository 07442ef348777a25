"""`--max-restarts`: torchrun restarts all ranks after one has failed, and a relaunch of the run keeps the
option."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.launch.plan import Facts, make_plan
from coach.launch.recipe import read_recipe
from coach.launch.record import said
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from tests.launch.examples import MACHINE, PATHS, RECIPE, RUN_ID, plan, write_recipe
from tests.launch.relaunches import asked_again


def test_the_restarts_that_were_asked_for_reach_torchrun_and_the_record_of_the_run(tmp_path: Path) -> None:
    made = plan(tmp_path, max_restarts=2)
    assert "  --max-restarts=2 \\\n" in made.script
    assert "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1\n" in made.script
    assert "RDZV_TCP_STORE" not in plan(tmp_path).script
    assert asked_again(made.run_json["launch"], "ddp").max_restarts == 2
    assert said(made.request)["max_restarts"] == 2


@pytest.mark.parametrize("max_restarts", [None, 0])
def test_without_restarts_the_first_failure_ends_the_run(tmp_path: Path, max_restarts: int | None) -> None:
    assert "max-restarts" not in plan(tmp_path, site=MACHINE, max_restarts=max_restarts).script


@pytest.mark.parametrize("max_restarts", [-1, 101])
def test_a_number_of_restarts_that_cannot_be_meant_is_refused(tmp_path: Path, max_restarts: int) -> None:
    with pytest.raises(UserError, match=f"--max-restarts {max_restarts}: must be 0 to 100"):
        plan(tmp_path, max_restarts=max_restarts)


def test_a_recipe_may_ask_for_restarts_and_the_launch_has_the_last_word(tmp_path: Path) -> None:
    text = f"{RECIPE.format(name='ddp', devices='multiple')}max_restarts = 3\n"
    data = tmp_path / "data"
    write_recipe(data, text=text)
    recipe = read_recipe(data / "recipes" / "ddp.toml", data)
    assert recipe.max_restarts == 3
    facts = Facts(PATHS, "anna", 1795271000.0, "0.1.0", None)
    for asked, option in ((None, "--max-restarts=3"), (1, "--max-restarts=1")):
        made = make_plan(LaunchRequest("ddp", max_restarts=asked), recipe, MACHINE, facts, RUN_ID)
        assert option in made.script
    made = make_plan(LaunchRequest("ddp", max_restarts=0), recipe, MACHINE, facts, RUN_ID)
    assert "max-restarts" not in made.script


@pytest.mark.parametrize("value", ["-1", "101", '"often"', "true"])
def test_a_recipe_s_restarts_are_a_number_that_can_be_meant(tmp_path: Path, value: str) -> None:
    text = f"{RECIPE.format(name='ddp', devices='multiple')}max_restarts = {value}\n"
    write_recipe(tmp_path, text=text)
    with pytest.raises(UserError, match=r"ddp\.toml:\d+: max_restarts = .*a whole number from 0 to 100"):
        read_recipe(tmp_path / "recipes" / "ddp.toml", tmp_path)
