"""Silence when all is well: every recipe that coach brings, launched on the real Slurm as it is, gets no
finding."""

from __future__ import annotations

import json

import pytest

from coach.launch.recipe import Recipe, find_recipes
from tests.installed import InstalledCoach

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]

STEPS = {"comm_bench": 3, "ring": 3, "compile": 12, "parallel_3d": 6, "profile": 30}
STEPS |= {"convolutions": 2, "ddp_buckets": 3, "fused_kernel": 5, "prefetcher": 3}
STEPS |= {"binding": 3, "roofline": 10}
"""For the others: enough steps for a rule about steady state to judge."""
ENOUGH_STEPS = 40
ON_TWO_CORES = {"fast": {"width": "16", "batch_size": "250", "compile": "false"}}
"""As its lesson says for a machine without a GPU."""
ELSEWHERE = {"mpi_allreduce"}
"""Its mpiexec lies beside another interpreter than the one that the tests' environment has: tests/trainers
start it."""
NOT_HERE = {"dali": "needs a GPU", "horovod_cnn": "builds with no torch of today"}


def shipped() -> list[Recipe]:
    return [recipe for recipe in find_recipes()[0] if recipe.sweep is None and recipe.name not in ELSEWHERE]


@pytest.mark.parametrize("recipe", shipped(), ids=lambda recipe: recipe.name)
def test_a_healthy_run_of_a_recipe_is_silent(user_coach: InstalledCoach, recipe: Recipe) -> None:
    steps = STEPS.get(recipe.name, ENOUGH_STEPS)
    said = {"max_steps": str(steps), "num_train_samples": "4096", "eval_every_epoch": "false"}
    said |= ON_TWO_CORES.get(recipe.name, {})
    sets = [
        word
        for name, value in said.items()
        if name in recipe.parameters
        for word in ("--set", f"{name}={value}")
    ]
    launched = user_coach("launch", recipe.name, *sets, "--wait", "--format", "json", timeout_s=600)
    if recipe.name in NOT_HERE:
        assert launched.returncode == 2, f"{recipe.name} {NOT_HERE[recipe.name]}, and coach should say so"
        assert recipe.name in launched.stderr or "needs" in launched.stderr
        return
    assert launched.returncode == 0, launched.stderr
    checked = user_coach("check", json.loads(launched.stdout)["run_id"], "--format", "json")
    loud = [item for item in json.loads(checked.stdout)["findings"] if item["severity"] != "info"]
    print(f"\n{recipe.name}: {len(loud)} findings at warning or above")  # noqa: T201 (what `make test-long` shows)
    assert loud == []
