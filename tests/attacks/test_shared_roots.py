"""Roots that hold code, data or records are the user's alone, or are refused in one line."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.mallory import Mallory
from tests.attacks.test_runs_of_others import plant
from tests.installed import InstalledCoach

pytestmark = pytest.mark.root

DRY = ("launch", "baseline", "--backend", "local", "--dry-run")


@pytest.fixture
def scratch(open_directory: Path, local_coach: InstalledCoach) -> Iterator[Path]:
    """A $SCRATCH that all users share, like /tmp."""
    folder = open_directory / f"scratch-{local_coach.user.home.name}"
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def test_a_root_that_another_user_made_is_refused_and_doctor_says_so(
    local_coach: InstalledCoach, mallory: Mallory, scratch: Path
) -> None:
    env = {"SCRATCH": str(scratch)}
    for place in ("coach", "coach/runs"):
        (scratch / place).mkdir()
        mallory.own(scratch / place, 0o777)
    done = local_coach(*DRY, env=env)
    assert done.returncode == 2
    assert f"{scratch}/coach/runs: belongs to uid 64999: name a folder of your own" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((scratch / "coach" / "runs").iterdir())
    doctor = " ".join(local_coach("doctor", env=env).stdout.split())
    assert "belongs to uid 64999: name a folder of your own" in doctor
    for command in ("runs", "recipes", "drill"):
        assert local_coach(command, env=env).returncode == 0, "who only looks, keeps nothing and may look"


def test_a_root_below_a_folder_in_which_everybody_may_rename_is_refused(
    local_coach: InstalledCoach, mallory: Mallory, scratch: Path
) -> None:
    (scratch / "coach").mkdir()
    mallory.own(scratch / "coach", 0o1777)  # its owner may rename what others made in it
    done = local_coach(*DRY, env={"SCRATCH": str(scratch)})
    assert done.returncode == 2
    assert f"everybody may write in {scratch}/coach" in done.stderr
    assert not list((scratch / "coach").iterdir())


def test_code_that_was_exchanged_in_a_root_is_not_used(
    local_coach: InstalledCoach, mallory: Mallory, scratch: Path
) -> None:
    env = {"SCRATCH": str(scratch)}
    assert local_coach(*DRY, env=env).returncode == 0
    root = scratch / "coach" / "runs"
    (code,) = (root / ".code").iterdir()
    assert local_coach(*DRY, env=env).returncode == 0, "unchanged code is used again"
    trainer = code / "trainers" / "baseline.py"
    original = trainer.read_text()
    trainer.write_text(f"import os; os.system('id')\n{original}")
    done = local_coach(*DRY, env=env)
    assert done.returncode == 2
    assert f"{code}: trainers/baseline.py was changed: remove it, and coach makes it again" in done.stderr
    trainer.write_text(original)
    (code / "trainers" / "json.py").write_text("")
    os.chown(code / "trainers" / "json.py", local_coach.user.uid, -1)
    assert "trainers/json.py is not of the copied files" in local_coach(*DRY, env=env).stderr
    mallory.own(code / "trainers" / "json.py")
    assert "trainers/json.py is not yours" in local_coach(*DRY, env=env).stderr
    (code / "trainers" / "json.py").unlink()
    (code / "trainers" / "common" / "data.py").unlink()
    (code / "trainers" / "table.csv").write_text("")
    os.chown(code / "trainers" / "table.csv", local_coach.user.uid, -1)
    assert local_coach(*DRY, env=env).returncode == 0, "what a purge of old files removed is copied again"
    assert (code / "trainers" / "common" / "data.py").exists()
    shutil.rmtree(code)
    code.mkdir()
    mallory.own(code, 0o755)
    assert f"{code}: belongs to uid 64999" in local_coach(*DRY, env=env).stderr
    shutil.rmtree(code)
    assert local_coach(*DRY, env=env).returncode == 0
    root.chmod(0o775)
    assert f"others may write to it: chmod go-w {root}" in local_coach(*DRY, env=env).stderr


def test_nothing_is_kept_in_another_users_cache_and_reading_goes_on(
    local_coach: InstalledCoach, mallory: Mallory, scratch: Path
) -> None:
    user = local_coach.user
    cache = scratch / "coach" / "cache"
    cache.mkdir(parents=True)
    for folder in (cache.parent, cache):
        mallory.own(folder, 0o777)
    run_dir = plant(mallory, user.home / "runs", Path("/bin/false"))
    for path in (run_dir.parent, run_dir, *run_dir.rglob("*")):
        os.chown(path, user.uid, user.gid)
    done = local_coach("check", run_dir, env={"SCRATCH": str(scratch)})
    assert done.returncode == 1
    assert "NUM001" in done.stdout
    assert f"{cache}: belongs to uid 64999: name a folder of your own" in done.stderr
    assert not list(cache.iterdir())


def test_ones_own_folder_in_shared_places_is_a_root(
    local_coach: InstalledCoach, mallory: Mallory, scratch: Path
) -> None:
    """A link of one's own; a folder of one's own in a project of somebody else's, with group rights."""
    user = local_coach.user
    project = scratch / "project"
    project.mkdir()
    mallory.own(project, 0o2775)
    (project / "coach").mkdir(mode=0o700)
    os.chown(project / "coach", user.uid, user.gid)
    link = user.home / "runs-link"
    link.symlink_to(project / "coach")
    for root in (project / "coach", link):
        config = user.home / ".config" / "coach" / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f'runs_root = "{root}"\n')
        done = local_coach(*DRY)
        assert done.returncode == 0, done.stderr
