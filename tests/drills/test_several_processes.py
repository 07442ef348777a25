"""What goes wrong between processes is found in the run of each such drill, though nothing of the run says which drill it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.conduct import Conductor, assert_found

pytestmark = pytest.mark.train

QUICK = ("spare_part", "busy_line")
OTHERS = (
    "crossed_pens",
    "groundhog",
    "lonely_rank",
    "plain_python",
    "short_day",
    "slow_walker",
    "sudden_silence",
    "torn_page",
    "twins",
    "waiting_room",
)


@pytest.fixture
def conductor(tmp_path: Path) -> Conductor:
    return Conductor(tmp_path)


@pytest.mark.parametrize("name", QUICK)
def test_the_planted_fault_between_processes_is_the_primary_finding(name: str, conductor: Conductor) -> None:
    assert_found(name, conductor)


@pytest.mark.long
@pytest.mark.parametrize("name", OTHERS)
def test_each_other_fault_between_processes_is_the_primary_finding(name: str, conductor: Conductor) -> None:
    assert_found(name, conductor)


@pytest.mark.long
def test_the_fault_free_twin_of_these_drills_is_silent(conductor: Conductor) -> None:
    values = ("model=gpt", "batch_size=8", "max_steps=100", "num_workers=0", "eval_every_epoch=false")
    flags = [word for value in values for word in ("--set", value)]
    words = ("--backend", "local", "--gpus", 0, "--nproc-per-node", 2, "--wait")
    run_dir = Path(conductor.coach("launch", "ddp", *flags, *words)["run_dir"])
    assert conductor.findings(run_dir) == []
