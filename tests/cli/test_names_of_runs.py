"""A run has one id and one short name, and each command knows it by both; squeue is a script that says
nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forked import typed_coach
from tests.workflows.known import World

ENDED, GOES_ON = "20261121-142230-own-00e0", "20261121-142230-own-00e1"
Coach = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def coach(tmp_path: Path) -> Coach:
    """`coach`, on a sweep of two runs: the array 7672."""
    world = World(tmp_path)
    for task, (name, state) in enumerate(((ENDED, "COMPLETED"), (GOES_ON, None))):
        sweep = {"group_id": ENDED, "parameter": "lr", "value": 0.1 * (task + 1), "index": task, "size": 2}
        world.make(name, state, sweep=sweep, job_id=f"7672_{task}", recipe="own")
    (tmp_path / "bin").mkdir()
    for name in ("squeue", "sacct", "scontrol", "sinfo", "sbatch"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\nexit 0\n")
        (tmp_path / "bin" / name).chmod(0o755)
    env = {**os.environ, "COACH_HOME": str(tmp_path), "COACH_AS_ROOT": "1", "SLURM_CLUSTER_NAME": "tiger"}
    env["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    return lambda *words: typed_coach(words, env)


@pytest.mark.parametrize("name", ["own-00e0", "own-00e1", "7672", "7672_1", ENDED])
def test_a_group_is_compared_by_any_name_of_its_runs_and_by_the_number_of_its_array(
    coach: Coach, name: str
) -> None:
    done = coach("compare", name)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{ENDED}: own, a run for each lr\n")


@pytest.mark.parametrize("name", ["own-00e0", "7672", GOES_ON])
def test_a_group_is_cancelled_by_any_name(coach: Coach, name: str) -> None:
    done = coach("cancel", name, "--group", "--dry-run")
    assert "not a run of a sweep" not in done.stderr
    assert "7672_1" in done.stderr  # the run that goes on was looked for, by its job


def test_cancel_and_resubmit_know_a_run_by_its_short_name(coach: Coach) -> None:
    assert "7672_1" in coach("cancel", "own-00e1", "--dry-run").stderr
    for verb in ("cancel", "resubmit"):
        short, whole = coach(verb, "own-00e0", "--dry-run"), coach(verb, ENDED, "--dry-run")
        assert "neither a run" not in short.stderr
        assert short.stderr.replace("own-00e0", ENDED) == whole.stderr.replace("own-00e0", ENDED)


def test_a_run_is_removed_by_its_short_name(coach: Coach, tmp_path: Path) -> None:
    assert "own-00e9: no such run" in coach("runs", "clean", "own-00e9", "--yes").stderr
    done = coach("runs", "clean", "own-00e0", "--yes")
    assert (done.returncode, (tmp_path / "runs" / ENDED).exists()) == (0, False), done.stderr
    assert (tmp_path / "runs" / GOES_ON).exists()
