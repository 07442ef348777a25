"""Which runs of a step the rehearsal launches, with the end of each run given by the test."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from coach.model.launching.launch import LaunchRequest, Plan
from coach.model.teaching.rehearsal import Item, Rehearsed, WorkshopPlan
from coach.workflows.launching.ladders import get_ladder, request_of_ladder
from coach.workflows.teaching import rehearsal
from tests.launch.examples import MACHINE
from tests.workflows.launching.test_sweep import world as world  # a fixture
from tests.workflows.test_launching import World


class Ended(rehearsal.Rehearsal):
    """A rehearsal whose runs have ended, some of them badly."""

    failing: Collection[str] = ()
    tried: list[str]

    def _launch(self, plan: Plan, planned: Rehearsed) -> Rehearsed:
        self.tried.append(f"{plan.recipe} on {plan.resources.world_size}")
        assert not plan.others
        assert plan.parameters["max_steps"] == 3
        problem = "it failed" if plan.recipe in self.failing else None
        return replace(planned, run_id=plan.run_id, problem=problem)


def rehearse(
    world: World, monkeypatch: pytest.MonkeyPatch, request: LaunchRequest, failing: Collection[str] = ()
) -> tuple[list[str], Rehearsed]:
    monkeypatch.setattr(rehearsal, "look_at_site", lambda backend, io: MACHINE)
    step = Item("step", replace(request, backend="local"), None)
    day = WorkshopPlan(4, 60, 3, (step,))
    trial = Ended(day, world.settings, world.env, world.io, lambda words: None, 60)
    trial.failing, trial.tried = failing, []
    tried = trial.try_one(step)
    return trial.tried, tried


def demos(world: World) -> LaunchRequest:
    return request_of_ladder(get_ladder("demos", world.settings), LaunchRequest(""))


def test_every_run_of_a_ladder_is_tried_and_the_ranks_that_are_too_many_are_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, tried = rehearse(world, monkeypatch, demos(world))
    assert runs == ["baseline on 1", "amp on 1", "ddp on 2", "ddp_amp on 2"]
    assert (tried.num_runs, tried.is_well, tried.gpu_hours) == (4, True, None)
    assert "ddp: asks 8 ranks, this machine has 2 CPUs per node" in tried.warnings


def test_a_ladder_ends_at_its_first_run_that_is_not_well(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, tried = rehearse(world, monkeypatch, demos(world), failing=("amp",))
    assert (runs, tried.problem) == (["baseline on 1", "amp on 1"], "it failed")


def test_of_a_sweep_only_the_largest_run_is_tried(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, tried = rehearse(world, monkeypatch, LaunchRequest("scale", set={"world_size": "1,2"}))
    assert (runs, tried.num_runs, tried.warnings) == (["scale on 2"], 2, ())
