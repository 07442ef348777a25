"""What goes wrong within one process is found in the run of each such drill, though nothing of the run says which drill it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.conduct import Conductor, assert_found, drill_of

pytestmark = pytest.mark.train

QUICK = ("missing_piece", "typo")
OTHERS = (
    "bad_sample",
    "crowded_kitchen",
    "growing_pains",
    "half_measure",
    "heavy_start",
    "idle_hands",
    "long_epochs",
    "lost_helper",
    "many_handles",
    "shrinking_scale",
    "slow_leak",
    "small_sips",
)


@pytest.fixture
def conductor(tmp_path: Path) -> Conductor:
    return Conductor(tmp_path)


@pytest.mark.parametrize("name", QUICK)
def test_the_planted_fault_within_a_process_is_the_primary_finding(name: str, conductor: Conductor) -> None:
    assert_found(name, conductor)


@pytest.mark.long
@pytest.mark.parametrize("name", OTHERS)
def test_each_other_fault_within_a_process_is_the_primary_finding(name: str, conductor: Conductor) -> None:
    assert_found(name, conductor)


@pytest.mark.long
def test_a_misspelt_key_of_deepspeed_is_the_primary_finding(conductor: Conductor) -> None:
    pytest.importorskip("deepspeed")
    assert_found("spelling", conductor)


@pytest.mark.long
@pytest.mark.parametrize("name", ["growing_pains", "half_measure", "typo", "idle_hands"])
def test_the_fault_free_twin_of_a_drill_within_a_process_is_silent(name: str, conductor: Conductor) -> None:
    twin = drill_of(name).twin
    assert twin is not None
    flags = [word for key, value in twin.set.items() for word in ("--set", f"{key}={_spelt(value)}")]
    words = (
        "--backend",
        "local",
        "--gpus",
        0,
        "--cpus-per-task",
        1,
        "--wait",
    )  # one CPU: one thread that computes
    run_dir = Path(conductor.coach("launch", twin.recipe, *flags, *words)["run_dir"])
    assert conductor.findings(run_dir) == []


def _spelt(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
