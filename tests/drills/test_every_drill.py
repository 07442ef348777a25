"""What each drill plants is found in its run, though nothing of the run says which drill it is; and coach clears its own bar."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coach.launch.recipe import find_drills, get_recipe
from coach.launch.resources import Site
from coach.model.drill import Need
from coach.sources.machine import read_machine
from coach.workflows.drill import why_skipped
from tests.drills.conduct import Conductor, assert_found, drill_of
from tests.installed import InstalledCoach

DRILLS = tuple(recipe.name for recipe in find_drills()[0])
QUICK = ("missing_piece", "half_measure", "heavy_start", "spare_part", "busy_line", "crossed_pens")
"""Of different families: code, numerics, memory, between processes, the network, files."""
ELSEWHERE = ("generous_cpus",)
"""Its node must really have the CPUs that Slurm says."""


@pytest.fixture
def conductor(tmp_path: Path) -> Conductor:
    return Conductor(tmp_path)


@pytest.mark.train
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in DRILLS]
)
def test_the_planted_fault_is_the_primary_finding(name: str, conductor: Conductor) -> None:
    for module in get_recipe(name).requires:
        pytest.importorskip(module)
    skipped = why_skipped(drill_of(name), Site("local", (), (read_machine(),)))
    if skipped is not None:
        pytest.skip(skipped)
    assert_found(name, conductor)


def test_six_drills_are_quick_and_at_least_24_need_nothing() -> None:
    assert len(set(QUICK) & set(DRILLS)) == 6
    assert not any(drill_of(name).needs or get_recipe(name).requires for name in QUICK)  # none is skipped
    assert sum(not drill_of(name).needs for name in DRILLS) >= 24


@pytest.mark.train
@pytest.mark.long
@pytest.mark.timeout(7200)
def test_every_drill_is_found_mended_and_measured_on_this_machine(conductor: Conductor) -> None:
    answer = conductor.coach("drill", "--all", "--backend", "local", timeout_s=1700)
    assert _missed(answer["drills"]) == {}


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(7200)
def test_every_drill_is_found_mended_and_measured_on_slurm(
    user_coach: InstalledCoach, open_directory: Path
) -> None:
    """Two at once on two cores; apart from those of GPUs and of many CPUs: the cluster's are there to be allotted only."""
    site = open_directory / "two-at-once.toml"
    site.write_text("[limits]\nmax_running = 2\n")
    shown = (name for name in DRILLS if Need.GPU not in drill_of(name).needs and name not in ELSEWHERE)
    words = ("drill", "--all", "--only", ",".join(shown), "--backend", "slurm", "--format", "json")
    done = user_coach(*words, env={"COACH_SITE": str(site)}, timeout_s=7000)
    assert done.stdout, done.stderr
    assert _missed(json.loads(done.stdout)["drills"]) == {}


def _missed(drills: list[dict[str, object]]) -> dict[object, object]:
    return {drill["name"]: drill["missed"] for drill in drills if drill["missed"]}
