"""coach finds the planted fault of each drill in its run, although the run does not name the drill; and each
is found, fixed, and as fast as its twin (`every_drill.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coach.launch.recipe import find_drills, get_recipe
from coach.model.teaching.drill import Need
from tests.cluster.slurm import SlurmCluster, booted
from tests.drills.conduct import Conductor, assert_found, drill_of, show
from tests.generated import lent_images

DRILLS = tuple(recipe.name for recipe in find_drills()[0])
QUICK = ("missing_piece", "heavy_start")
"""Of different families: code, memory. `make test-long` has all drills."""
ELSEWHERE = ("generous_cpus",)
"""Its node must really have the CPUs that Slurm says."""


@pytest.mark.train
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", QUICK)
def test_the_planted_fault_is_the_primary_finding(name: str, tmp_path: Path) -> None:
    conductor = Conductor(tmp_path)
    with lent_images(tmp_path):
        assert_found(name, conductor.run(name), conductor)


def test_two_drills_are_quick_and_at_least_24_need_nothing() -> None:
    assert len(set(QUICK) & set(DRILLS)) == 2
    assert not any(drill_of(name).needs or get_recipe(name).requires for name in QUICK)  # none is skipped
    assert sum(not drill_of(name).needs for name in DRILLS) >= 24


@pytest.fixture(scope="module")
def on_this_machine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Conductor, dict[str, dict[str, Any]]]:
    """The results of each drill on the local backend."""
    conductor = Conductor(tmp_path_factory.mktemp("drills"))
    drills = conductor.program("tests.drills.every_drill", "--backend", "local", timeout_s=1700)["drills"]
    show(drills)
    return conductor, {drill["name"]: drill for drill in drills}


@pytest.mark.train
@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize("name", DRILLS)
def test_it_is_found_mended_and_measured_on_this_machine(
    name: str, on_this_machine: tuple[Conductor, dict[str, dict[str, Any]]]
) -> None:
    conductor, drills = on_this_machine
    drill = drills[name]
    if drill["skipped"] is not None:
        pytest.skip(drill["skipped"])
    assert drill["misses"] == []
    assert_found(name, Path(drill["run_dir"]), conductor)


@pytest.fixture
def conductor_on_strict_slurm(tmp_path: Path) -> Iterator[Conductor]:
    """coach on a Slurm that ends jobs above their requested memory, as real sites do."""
    more = "JobAcctGatherParams=OverMemoryKill\n"
    with booted("coach-strict", lambda directory: SlurmCluster(directory, more_conf=more)) as cluster:
        yield Conductor(tmp_path, dict(cluster.env))


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.flaky(reruns=0)
def test_every_drill_is_found_mended_and_measured_on_slurm(conductor_on_strict_slurm: Conductor) -> None:
    """Apart from those of GPUs and of many CPUs: the cluster's are there to be allotted only."""
    shown = [name for name in DRILLS if Need.GPU not in drill_of(name).needs and name not in ELSEWHERE]
    words = ("tests.drills.every_drill", "--backend", "slurm", *shown)
    drills = conductor_on_strict_slurm.program(*words, timeout_s=3400)["drills"]
    show(drills)
    assert {drill["name"]: drill["misses"] for drill in drills if drill["misses"]} == {}
