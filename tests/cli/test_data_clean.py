"""`coach data clean` as a user types it: it lists the generated sets with their sizes, asks, and removes
them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.forked import typed_coach
from tests.workflows.known import World

RUN = "20261121-142230-ddp-0000"


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "bin" / "squeue").chmod(0o755)
    return World(tmp_path)


def clean(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    home = world.settings.config_dir.parent
    env = {**os.environ, "COACH_HOME": str(home), "COACH_AS_ROOT": "1", "SLURM_CLUSTER_NAME": "tiger"}
    return typed_coach(("data", "clean", *words), {**env, "PATH": f"{home / 'bin'}:{os.environ['PATH']}"})


def generated(world: World) -> Path:
    folder = world.settings.cache_dir / "cifar-10-generated-10-2-v1"
    (folder / "cifar-10-batches-py").mkdir(parents=True)
    (folder / "cifar-10-batches-py" / "data_batch_1").write_bytes(bytes(2 << 20))
    return folder


def test_generated_sets_are_listed_and_only_yes_removes_them(world: World) -> None:
    folder, other = generated(world), world.settings.cache_dir / "jobs.json"
    other.write_text("{}")
    asked = clean(world)
    assert (asked.returncode, folder.exists()) == (2, True)
    assert str(folder) in asked.stdout
    assert "to be confirmed: remove 1 generated set, 2.1 MB" in asked.stderr
    done = clean(world, "--yes")
    assert (done.returncode, folder.exists(), other.exists()) == (0, False, True), done.stderr
    assert "coach: removed 2.1 MB" in done.stderr
    assert clean(world, "--yes").stderr == "coach: nothing to remove\n"


def test_a_set_stays_while_a_run_may_read_it(world: World, tmp_path: Path) -> None:
    folder = generated(world)
    world.make(RUN, state="RUNNING")
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\nexit 1\n")
    done = clean(world, "--yes")
    assert (done.returncode, folder.exists()) == (1, True)
    assert f"coach: kept: {RUN} may be reading them" in done.stderr


def test_a_link_in_the_cache_is_not_followed(world: World, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    world.settings.cache_dir.mkdir(parents=True, exist_ok=True)
    (world.settings.cache_dir / "cifar-10-generated-10-2-v1").symlink_to(real)
    assert clean(world, "--yes").stderr == "coach: nothing to remove\n"
    assert real.is_dir()
